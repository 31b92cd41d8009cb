package ledger

// Queued is an event that waits, as the rule for one text of several needs it.
type Queued struct {
	// Framed is true of what others wrote: it reaches an agent in a frame. What an operator wrote by hand is not, nor is the opening event,
	// with which a conversation begins: each of them is a text of its own.
	Framed bool
	// Asked is true once it may have been asked about: its text is what it is.
	Asked bool
	// Together names what becomes one text whenever two or more of it wait, such as the results of CI at one commit; empty for nothing.
	Together string
}

// Coalescing says when events become one text.
type Coalescing struct {
	// After is how many further events must wait for that; zero never does it.
	After int
	// Together does it for what names the same Together.
	Together bool
	// Most is how many events may join the first.
	Most int
}

// Coalesce returns which of the events that wait behind the first one of an item become one text with it, in their order. Either it is the run
// of them right behind it, if that is long enough: nothing is passed over, so that what is left stays behind. Or it is what belongs
// together wherever it waits: a result of CI is as true before a comment as behind it.
func Coalesce(head Queued, behind []Queued, c Coalescing) (taken []int) {
	if !head.Framed || head.Asked {
		return nil
	}
	run := 0
	for run < len(behind) && behind[run].Framed && !behind[run].Asked {
		run++
	}
	long := c.After > 0 && run > c.After
	for i, q := range behind {
		joins := long && i < run || !long && c.Together && head.Together != "" && q.Together == head.Together && q.Framed && !q.Asked
		if joins && len(taken) < c.Most {
			taken = append(taken, i)
		}
	}
	return taken
}
