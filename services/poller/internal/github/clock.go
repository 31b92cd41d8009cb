package github

import (
	"net/http"
	"sync"
	"time"
)

// tellSkew is how wrong this machine's clock has to be to be told as a cause.
const tellSkew = time.Minute

// clock knows the server's time by the Date of its answers.
type clock struct {
	now func() time.Time

	mu   sync.Mutex
	skew time.Duration
}

// learn compares an answer's Date, which is cut to the second, with the middle of the time that the request took.
func (c *clock) learn(header http.Header, began, ended time.Time) {
	at, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return
	}
	skew := at.Add(time.Second / 2).Sub(began.Add(ended.Sub(began) / 2))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew = skew
}

// ahead returns how far the server's clock is before ours; negative when ours is.
func (c *clock) ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.skew
}

// server returns the server's time.
func (c *clock) server() time.Time { return c.now().Add(c.ahead()) }

// blame names this machine's clock where it is wrong enough to be a cause; empty where it is not.
func (c *clock) blame() string {
	skew := c.ahead()
	switch {
	case skew > tellSkew:
		return "this machine's clock is " + skew.Round(time.Second).String() + " behind the server's"
	case skew < -tellSkew:
		return "this machine's clock is " + (-skew).Round(time.Second).String() + " ahead of the server's"
	}
	return ""
}
