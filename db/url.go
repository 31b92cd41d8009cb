package db

import (
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"muxpost.dev/muxpost/core/fault"
)

// LoadURL returns the database URL from one of two settings: the URL itself, or the path of a file that holds it, so that no
// secret need stand in argv or in the environment. White space around the file's text is trimmed. Both, neither, or a file
// that is empty or cannot be read, are fault.Invalid.
func LoadURL(url, urlFile string) (string, error) {
	url = strings.TrimSpace(url)
	switch {
	case url != "" && urlFile != "":
		return "", fault.New(fault.Invalid, fault.ReasonBadConfig, "both a database URL and a file with one are set").
			WithRemedy("keep one of them")
	case url != "":
		return url, nil
	case urlFile == "":
		return "", noURL()
	}
	text, err := os.ReadFile(urlFile)
	if err != nil {
		return "", fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "the file with the database URL cannot be read", err)
	}
	url = strings.TrimSpace(string(text))
	if url == "" {
		return "", fault.Newf(fault.Invalid, fault.ReasonBadConfig, "the file %s should hold a database URL and is empty", urlFile)
	}
	return url, nil
}

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
