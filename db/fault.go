package db

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"muxpost.dev/muxpost/core/fault"
)

// Fault gives an error of the database its kind:
//
//   - no rows: NotFound;
//   - a unique or exclusion constraint: AlreadyExists (Constraint names it);
//   - a connection that failed or was lost, a server that is starting, stopping, full or read-only, a transaction that kept
//     colliding with others: Unavailable, ReasonDatabase;
//   - a deadline of ours or a timeout of the server's: Unavailable, ReasonDeadline;
//   - a text with a NUL character: Invalid, ReasonBadText;
//   - a call that its caller cancelled: Unavailable, no reason;
//   - any other answer of the server: Internal, ReasonDatabase, for then a statement of ours is wrong.
//
// The cause is kept. Nil, an error that has its kind, and one that did not come from the database, are returned as they are.
func Fault(err error) error {
	var known *fault.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg):
		return serverFault(pg, err)
	case errors.Is(err, pgx.ErrNoRows):
		return fault.Wrap(fault.NotFound, "", "no such row", err)
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return fault.Wrap(fault.Internal, fault.ReasonDatabase, "a statement failed and its error was passed over", err)
	case errors.Is(err, context.Canceled):
		return fault.Wrap(fault.Unavailable, "", "the call was cancelled before the database answered", shown(err))
	case connectionLost(err):
		return fault.Wrap(fault.Unavailable, fault.ReasonDatabase, "the database cannot be reached", shown(err))
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Unavailable, fault.ReasonDeadline, "the database did not answer in time", shown(err))
	}
	return err
}

// SQLState returns the server's five-character code for an error, and "" for one the server did not send.
func SQLState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// Constraint returns the name of the constraint that an error is about, and "" when it is about none.
func Constraint(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.ConstraintName
	}
	return ""
}

func serverFault(pg *pgconn.PgError, err error) error {
	unavailable := func(message string) error {
		return fault.Wrap(fault.Unavailable, fault.ReasonDatabase, message, shown(err))
	}
	switch pg.Code {
	case "23505", "23P01":
		return fault.Wrap(fault.AlreadyExists, "", "a row with this key is there", err)
	case "57014", "55P03", "25P03", "57P05":
		return fault.Wrap(fault.Unavailable, fault.ReasonDeadline, "the database gave up waiting", err)
	case "40001", "40P01":
		return unavailable("the transaction collided with others each time it was tried")
	case "22021":
		return fault.Wrap(fault.Invalid, fault.ReasonBadText, "a text has a character that cannot be kept", shown(err)).
			WithRemedy("leave out NUL characters")
	case "25006":
		return unavailable("the database accepts no writes now")
	case "3D000":
		return unavailable("the database is not there")
	}
	switch pg.Code[:min(2, len(pg.Code))] {
	case "08":
		return unavailable("the connection to the database failed")
	case "28":
		return unavailable("the database refused the user")
	case "53":
		return unavailable("the database is out of a resource")
	case "57":
		return unavailable("the database is starting or stopping")
	case "58":
		return unavailable("the database's machine failed it")
	}
	return fault.Wrap(fault.Internal, fault.ReasonDatabase, "the database refused a statement", shown(err))
}

// connectionLost reports whether no server answered: it could not be dialed, the connection broke, or there is no pool to
// take one from. A deadline that ended a statement is not that; a time limit on dialing is.
func connectionLost(err error) bool {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return true
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var network net.Error
	return errors.As(err, &network) || pgconn.Timeout(err) || errors.Is(err, pgconn.ErrConnClosed) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, puddle.ErrClosedPool)
}

// shownError is a cause whose text is fit for people: one line, and no value from a statement.
type shownError struct {
	text string
	err  error
}

func (e *shownError) Error() string { return e.text }
func (e *shownError) Unwrap() error { return e.err }

// shown keeps an error as a cause and changes what it says. A data exception (class 22) quotes the value it is about, which may
// be prompt text, so only its code is shown.
func shown(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && strings.HasPrefix(pg.Code, "22") {
		return &shownError{text: "a value does not fit its column (SQLSTATE " + pg.Code + ")", err: err}
	}
	return &shownError{text: strings.Join(strings.Fields(err.Error()), " "), err: err}
}
