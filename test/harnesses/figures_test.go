package harnesses

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// Numbers of the figures, unless the environment says otherwise (make test-harnesses).
const (
	figuresPrompts = 30
	figuresKills   = 2
)

func TestHarness_TheFiguresAreWhatTheyHaveToBe(t *testing.T) {
	prompts, kills, seed := number(t, "HARNESS_PROMPTS", figuresPrompts), number(t, "HARNESS_KILLS", figuresKills), number(t, "HARNESS_SEED", 1)
	each(t, func(r *rig) {
		// Also what was cut short has its figures: nothing is tried after a delivery that did not arrive.
		defer func() {
			f := r.figures()
			fmt.Printf("harness %s %v\n", r.title(), f)
			if f.off() || f.prompts != prompts || f.kills != kills {
				r.t.Errorf("%v, and %d prompts with %d kills were wanted", f, prompts, kills)
			}
		}()
		r.started("")
		r.mix(prompts, kills, rand.New(rand.NewPCG(uint64(seed), 0)))
		r.innocent()
	})
}

// number is one of the environment's.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
	if err != nil || n < 1 {
		t.Fatalf("%s is no number above zero", name)
	}
	return n
}

// mix meets the situations in a random order, each as often as the others, with the kills spread between them.
func (r *rig) mix(prompts, kills int, random *rand.Rand) {
	r.t.Helper()
	r.deliver(r.next("as soon as you are there"))
	begun := time.Now()
	var table []situation
	for len(r.deliveries) < prompts {
		left, owed := prompts-len(r.deliveries), kills-r.kills
		if r.kills < (len(r.deliveries)+1)*kills/prompts || left <= owed {
			victims := []victim{theProgram, theWrapper}
			if r.companion() {
				victims = append(victims, theCompanion)
			}
			v, inTurn := victims[random.IntN(len(victims))], random.IntN(3) == 0 && left > owed
			r.progress(begun, prompts, fmt.Sprintf("a kill (of %v, in a turn: %v)", v, inTurn))
			r.meetDeath(v, inTurn)
			continue
		}
		if len(table) == 0 {
			table = situations()
			random.Shuffle(len(table), func(i, j int) { table[i], table[j] = table[j], table[i] })
		}
		s := table[0]
		if table = table[1:]; s.deliveries <= left-owed {
			r.progress(begun, prompts, s.name)
			s.meet(r)
		}
	}
}

// progress says what comes next.
func (r *rig) progress(begun time.Time, prompts int, next string) {
	fmt.Printf("%8v %s %d of %d, %d kills; next: %s\n", time.Since(begun).Round(time.Second), r.title(), len(r.deliveries), prompts, r.kills, next)
}
