package db

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"muxpost.dev/muxpost/core/fault"
)

// Describe names the database behind a URL for people: its name, where it is, and as which user; never the password. A URL
// that cannot be read is fault.Invalid.
func Describe(url string) (string, error) {
	if strings.TrimSpace(url) == "" {
		return "", noURL()
	}
	c, err := pgconn.ParseConfig(url)
	if err != nil {
		return "", badURL(err)
	}
	return describe(*c), nil
}

func noURL() error {
	return fault.New(fault.Invalid, fault.ReasonBadConfig, "no database URL is set").
		WithRemedy("set one, such as postgres://user:password@host:5432/muxpost, or the path of a file that holds it")
}

// badURL leaves out what pgx says: where a password breaks the syntax, no text about the URL is sure not to quote a part of it.
func badURL(error) error {
	return fault.New(fault.Invalid, fault.ReasonBadConfig, "the database URL cannot be read").WithRemedy(fmt.Sprintf(
		"write it as postgres://user:password@host:5432/muxpost, with %s in the password percent-encoded, and check its parameters",
		"characters such as @ : / ? #"))
}
