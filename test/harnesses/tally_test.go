package harnesses

import (
	"fmt"
	"strconv"
	"strings"

	"muxpost.dev/muxpost/core/prompt"
)

// delivery is one that was asked for.
type delivery struct{ id, text string }

// tally is what was asked for and done. What came of it is not kept but read from the records.
type tally struct {
	deliveries []delivery
	drafts     []string
	// allowances are how often a person allowed something; kills, how often the program was killed, and resumed, how often it went on with
	// the same conversation after that.
	allowances, kills, resumed int
}

// next makes a delivery, which has to arrive.
func (r *rig) next(text string) delivery {
	r.sent++
	d := delivery{"delivery-" + strconv.Itoa(10000+r.sent), text}
	r.deliveries = append(r.deliveries, d)
	return d
}

// draft returns what nobody else writes.
func (r *rig) draft() string {
	r.sent++
	words := "half a draft " + strconv.Itoa(10000+r.sent)
	r.drafts = append(r.drafts, words)
	return words
}

func (r *rig) all() []heard {
	r.t.Helper()
	all, err := r.heard(r)
	must(r.t, err)
	return all
}

// reached returns how often a delivery arrived whole and exact, and how often otherwise.
func (r *rig) reached(d delivery) (exact []heard, otherwise int) {
	r.t.Helper()
	clean, _, err := prompt.Clean(d.text)
	must(r.t, err)
	want := strings.TrimRight(prompt.Typed(d.id, clean), " \n")
	for _, h := range r.all() {
		switch {
		case strings.TrimRight(h.text, " \n") == want:
			exact = append(exact, h)
		case strings.Contains(h.text, prompt.Mark(d.id)):
			otherwise++
		}
	}
	return exact, otherwise
}

// arrives waits for a delivery.
func (r *rig) arrives(d delivery) heard {
	r.t.Helper()
	var exact []heard
	r.until(startTime, d.id+" arrived", func() bool { exact, _ = r.reached(d); return len(exact) > 0 })
	return exact[0]
}

// absent reports that nothing of a delivery arrived.
func (r *rig) absent(d delivery) bool {
	r.t.Helper()
	exact, otherwise := r.reached(d)
	return len(exact) == 0 && otherwise == 0
}

// figures are what came of all that was asked for.
type figures struct{ prompts, once, doubled, lost, dialogs, drafts, resumed, kills int }

// figures reads what came of all that was asked for.
func (r *rig) figures() figures {
	r.t.Helper()
	f := figures{prompts: len(r.deliveries), resumed: r.resumed, kills: r.kills}
	for _, d := range r.deliveries {
		switch exact, otherwise := r.reached(d); {
		case len(exact) == 1 && otherwise == 0:
			f.once++
		case len(exact) == 0:
			f.lost++
		default:
			f.doubled++
		}
	}
	for _, words := range r.drafts {
		for _, h := range r.all() {
			if strings.Contains(h.text, words) {
				f.drafts++
			}
		}
	}
	allowed, err := r.allowed(r)
	must(r.t, err)
	f.dialogs = allowed - r.allowances
	return f
}

// off reports whether anything is not as it has to be.
func (f figures) off() bool {
	return f != figures{prompts: f.prompts, once: f.prompts, resumed: f.kills, kills: f.kills}
}

func (f figures) String() string {
	return fmt.Sprintf("prompts=%d once=%d doubled=%d lost=%d dialogs=%d drafts=%d resumed=%d/%d", f.prompts, f.once, f.doubled, f.lost, f.dialogs,
		f.drafts, f.resumed, f.kills)
}
