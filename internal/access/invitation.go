package access

import (
	"context"
	"encoding/hex"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/identity"
)

// Invitation is what is kept of an invitation, by which a host gets its first certificate.
type Invitation struct {
	ID, Host, Who string
	Hash          []byte
	Ends          time.Time
}

// invited begins every invitation.
const invited = "muxpostjoin"

// Invite makes an invitation: its text, which is shown once, and what is kept. It carries by which certificate the authority is known, so
// that the host trusts nobody else.
func Invite(fingerprint []byte) (text string, kept Invitation) {
	token, id, hash := New()
	_, secret, _ := parse(token)
	return strings.Join([]string{invited, id, secret, hex.EncodeToString(fingerprint)}, "_"), Invitation{ID: id, Hash: hash}
}

// ParseInvitation takes an invitation apart. Anything else is fault.Invalid, which does not repeat it.
func ParseInvitation(text string) (id string, hash, fingerprint []byte, err error) {
	part := strings.Split(strings.TrimSpace(text), "_")
	if len(part) == 4 && part[0] == invited {
		if id, secret, ok := parse(strings.Join([]string{prefix, part[1], part[2]}, "_")); ok {
			if fingerprint, err = hex.DecodeString(part[3]); err == nil && len(fingerprint) == 32 {
				return id, hashOf(secret), fingerprint, nil
			}
		}
	}
	return "", nil, nil, fault.New(fault.Invalid, fault.ReasonBadArgument, "this is not an invitation").
		WithRemedy("muxpost hosts invite makes one, which begins with " + invited + "_")
}

// HostOf returns the host whose certificate a call was made with; false when it was made otherwise.
func HostOf(ctx context.Context) (string, bool) {
	id, _ := ctx.Value(hostKey{}).(identity.ID)
	return id.HostName()
}

// hostKey is the key under which the context of a call has the name of the host that makes it.
type hostKey struct{}
