package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	gh "github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/core/fault"
)

var (
	errTooLarge = errors.New("the answer is larger than 64 MiB")
	// errForbidden is a good token that may not do something.
	errForbidden = errors.New("the token may not do this (status 403)")
	// errUnprocessable is a request that is well formed and about something that there is not, such as a commit.
	errUnprocessable = errors.New("it cannot be processed (status 422)")
)

// failed gives a request that was not answered with success its kind. ctx is that of whoever asked, not the request's own.
func (c *Client) failed(ctx context.Context, repository string, response *gh.Response, err error) error {
	if response == nil || response.Response == nil {
		return c.transport.silent(ctx, repository, c.timeout, err)
	}
	status, header := response.StatusCode, response.Header
	if f := throttled(c.base.Host, status, header, messageOf(err), err); f != nil {
		return f
	}
	refused := func(kind fault.Kind, what, remedy string) error {
		return fault.Newf(kind, fault.ReasonSourceRefused, "%s refuses %s (status %d): %s", c.base.Host, repository, status, what).
			WithRemedy(remedy)
	}
	permission, access, lacks := "Issues", "read", "the token lacks a permission"
	if r := response.Request; r != nil {
		permission = permissionFor(r.URL.Path)
	}
	if r := response.Request; r != nil && r.Method != http.MethodGet {
		access, lacks = "write", "the token lacks a permission, or the conversation is locked"
	}
	switch {
	case status == http.StatusUnauthorized && c.transport.clock.blame() != "":
		return refused(fault.Denied, "the token is missing, wrong or expired, and "+c.transport.clock.blame(),
			"put a valid token into the source's token_file, or give the App a valid key, and set the clock")
	case status == http.StatusUnauthorized:
		return refused(fault.Denied, "the token is missing, wrong or expired", "put a valid token into the source's token_file")
	case status == http.StatusForbidden && repository == "":
		return fault.Wrap(fault.Denied, fault.ReasonSourceRefused, c.base.Host+" refuses a request", errForbidden)
	case status == http.StatusForbidden:
		return refused(fault.Denied, lacks, "give the token "+access+" access to "+repository+
			" (fine-grained, or an App: "+permission+", "+access+"; classic: repo), and authorise it for the organisation if that uses single sign-on")
	case status == http.StatusNotFound, status == http.StatusGone:
		return refused(fault.NotFound, "there is nothing of that name, or the token may not see it", "check the spelling of "+repository+
			", that its issues are enabled, and that the token has access to it (fine-grained, or an App: "+permission+", "+access+")")
	case status == http.StatusUnprocessableEntity:
		return fault.Wrap(fault.Invalid, fault.ReasonSourceRefused, c.base.Host+" does not take a request about "+repository, errUnprocessable).
			WithRemedy("check base_url: is it a server that speaks GitHub's REST API?")
	case status >= 500:
		return fault.Newf(fault.Unavailable, fault.ReasonSourceUnreachable, "%s answers %s with status %d", c.base.Host, repository, status)
	case status >= 300 && status < 400:
		return refused(fault.Denied, "it sends us to another server, and the token is not sent there", "set base_url to the server's own address")
	}
	return refused(fault.Invalid, "it does not take the request", "check base_url: is it a server that speaks GitHub's REST API?")
}

// permissionFor names the permission that reading a path takes, as GitHub calls it.
func permissionFor(path string) string {
	for part, permission := range map[string]string{
		"/check-runs": "Checks", "/status": "Commit statuses", "/actions/": "Actions", "/pulls": "Pull requests", "/branches/": "Contents",
	} {
		if strings.Contains(path, part) {
			return permission
		}
	}
	return "Issues"
}

// unreadable gives a body that could not be read its kind: it was cut short, or it is not what the API answers with. ctx is as failed's.
func (t *transport) unreadable(ctx context.Context, about string, err error) error {
	what := fmt.Sprintf("the answer of %s about %s was cut short or cannot be read", t.base.Host, about)
	if ctx.Err() != nil {
		what = t.late(about)
	}
	return fault.Wrap(fault.Unavailable, fault.ReasonSourceUnreachable, what, plain(err))
}

// late says that it was not the server that took too long: whoever asked had no time left.
func (t *transport) late(about string) string {
	return fmt.Sprintf("there was no time left to wait for the answer of %s about %s", t.base.Host, about)
}

// silent gives a request without an answer its kind. One that was not sent, because there is no token, says so itself. ctx is as failed's.
func (t *transport) silent(ctx context.Context, about string, timeout time.Duration, err error) error {
	var known *fault.Error
	if errors.As(err, &known) {
		return known
	}
	what := fmt.Sprintf("%s does not answer about %s", t.base.Host, about)
	switch {
	case ctx.Err() != nil:
		what = t.late(about)
	case errors.Is(err, context.DeadlineExceeded):
		what = fmt.Sprintf("%s did not answer about %s within %v", t.base.Host, about, timeout)
	}
	return fault.Wrap(fault.Unavailable, fault.ReasonSourceUnreachable, what, plain(err))
}

// throttled returns the fault of an answer that is about a limit, and nil for any other.
func throttled(host string, status int, header http.Header, message string, err error) *fault.Error {
	wait, ok := limited(status, header, message, err)
	if !ok {
		return nil
	}
	return limitFault(host, "status "+strconv.Itoa(status), wait)
}

func limitFault(host, by string, wait time.Duration) *fault.Error {
	f := fault.Newf(fault.Throttled, fault.ReasonRateLimited, "%s limits requests (%s)", host, by)
	if wait > 0 {
		f = f.WithRetryAfter(wait).WithRemedy(fmt.Sprintf("it is asked again in %v; a longer interval or fewer repositories use less", wait))
	}
	return f
}

// plain drops the URL that net/http puts before its errors.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// limited reports whether an answer is about a limit, and for how long; 0 where it does not say. One status code has three
// meanings here, so everything that GitHub documents is looked at.
func limited(status int, header http.Header, message string, err error) (time.Duration, bool) {
	if status != http.StatusForbidden && status != http.StatusTooManyRequests {
		return 0, false
	}
	if text := header.Get("Retry-After"); text != "" {
		return retryAfter(text, header), true
	}
	if header.Get("X-Ratelimit-Remaining") == "0" {
		return untilReset(header), true
	}
	var abuse *gh.AbuseRateLimitError
	secondary := errors.As(err, &abuse) || strings.Contains(strings.ToLower(message), "secondary rate limit")
	return 0, status == http.StatusTooManyRequests || secondary
}

func retryAfter(text string, header http.Header) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil && seconds >= 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(dateOf(header)))
	}
	return 0
}

// untilReset measures by the server's own clock, which need not agree with ours.
func untilReset(header http.Header) time.Duration {
	reset, err := strconv.ParseInt(header.Get("X-Ratelimit-Reset"), 10, 64)
	if err != nil {
		return 0
	}
	return max(0, time.Unix(reset, 0).Sub(dateOf(header))) + time.Second
}

// dateOf returns the server's time, and ours where it does not say.
func dateOf(header http.Header) time.Time {
	if at, err := http.ParseTime(header.Get("Date")); err == nil {
		return at
	}
	return time.Now()
}

func messageOf(err error) string {
	var response *gh.ErrorResponse
	var abuse *gh.AbuseRateLimitError
	var limit *gh.RateLimitError
	switch {
	case errors.As(err, &response):
		return response.Message
	case errors.As(err, &abuse):
		return abuse.Message
	case errors.As(err, &limit):
		return limit.Message
	}
	return ""
}
