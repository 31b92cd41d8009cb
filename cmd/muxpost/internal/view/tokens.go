package view

import (
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

// TokenState says in a word whether a token counts.
func (p Printer) TokenState(t *dispatcherv1.Token) string {
	switch {
	case t.GetRevokeTime() != nil:
		return "revoked"
	case t.GetExpireTime() != nil && !p.Now.Before(t.GetExpireTime().AsTime()):
		return "ended"
	}
	return "valid"
}

// Tokens writes a table of tokens.
func (p Printer) Tokens(tokens []*dispatcherv1.Token) {
	rows := make([][]Cell, 0, len(tokens))
	for _, t := range tokens {
		state, used, ends := Cell{Text: p.TokenState(t), Tone: Good}, "never", "never"
		if state.Text != "valid" {
			state.Tone = Bad
		}
		if t.GetUseTime() != nil {
			used = p.Ago(t.GetUseTime().AsTime())
		}
		if t.GetExpireTime() != nil {
			ends = p.When(t.GetExpireTime())
		}
		rows = append(rows, []Cell{Text(t.GetId()), Text(t.GetName()), Text(Word(t.GetRole().String(), "ROLE_")), state, Text(p.When(t.GetCreateTime())),
			Text(t.GetWho()), Text(ends), Text(used)})
	}
	p.Table("there is no token", []string{"ID", "NAME", "ROLE", "STATE", "MADE", "BY", "ENDS", "USED"}, rows)
}
