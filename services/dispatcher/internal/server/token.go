package server

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
)

// Page tokens name the last row of a page, so that rows which come in meanwhile move nothing. The prefix tells the lists apart.
const (
	deliveryPrefix = "d1|"
	sessionPrefix  = "s1|"
	pausePrefix    = "p1|"
	parkPrefix     = "k1|"
	leftPrefix     = "l1|"
	runPrefix      = "r1|"
	maxToken       = 1024
)

func encode(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func decode(token, prefix string) (string, error) {
	if len(token) > maxToken {
		return "", badToken()
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", badToken()
	}
	rest, ok := strings.CutPrefix(string(text), prefix)
	if !ok {
		return "", badToken()
	}
	return rest, nil
}

func badToken() error {
	return fault.New(fault.Invalid, fault.ReasonBadArgument, "page_token is not one that this list gave out").
		WithRemedy("pass next_page_token as it was returned, or nothing for the first page")
}

func deliveryToken(at time.Time, id string) string {
	return encode(deliveryPrefix + strconv.FormatInt(at.UnixMicro(), 10) + "|" + id)
}

// readDeliveryToken reads a token; an empty one is the first page.
func readDeliveryToken(token string) (at time.Time, id string, err error) {
	if token == "" {
		return time.Time{}, "", nil
	}
	text, err := decode(token, deliveryPrefix)
	if err != nil {
		return time.Time{}, "", err
	}
	micros, id, _ := strings.Cut(text, "|")
	n, err := strconv.ParseInt(micros, 10, 64)
	// The database knows no time beyond the year 294276.
	if at = time.UnixMicro(n).UTC(); err != nil || at.Year() < 1 || at.Year() > 9999 || !session.ValidDeliveryID(id) {
		return time.Time{}, "", badToken()
	}
	return at, id, nil
}

func itemToken(prefix, item string) string { return encode(prefix + item) }

// readItemToken reads the token of a list by work item; an empty one is the first page.
func readItemToken(token, prefix string) (item string, err error) {
	if token == "" {
		return "", nil
	}
	text, err := decode(token, prefix)
	if err != nil {
		return "", err
	}
	ref, err := workitem.Parse(text)
	if err != nil {
		return "", badToken()
	}
	return ref.String(), nil
}

// supersededToken names a session that was left behind; the name of a host has no |.
func supersededToken(host, item string) string { return encode(leftPrefix + host + "|" + item) }

// readSupersededToken reads a token; an empty one is the first page.
func readSupersededToken(token string) (host, item string, err error) {
	if token == "" {
		return "", "", nil
	}
	text, err := decode(token, leftPrefix)
	if err != nil {
		return "", "", err
	}
	host, item, _ = strings.Cut(text, "|")
	ref, err := workitem.Parse(item)
	if err != nil || host == "" {
		return "", "", badToken()
	}
	return host, ref.String(), nil
}

func pauseToken(item string) string { return encode(pausePrefix + item) }

// readPauseToken reads a token, whose item may be empty: that is the pause of all. No token is nil.
func readPauseToken(token string) (*string, error) {
	if token == "" {
		return nil, nil //nolint:nilnil // No position is what nil stands for.
	}
	text, err := decode(token, pausePrefix)
	if err != nil || text == "" {
		return &text, err
	}
	ref, err := workitem.Parse(text)
	if err != nil {
		return nil, badToken()
	}
	text = ref.String()
	return &text, nil
}
