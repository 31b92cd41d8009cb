package view

import dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"

// PauseLine says in one line what is paused, since when, by whom and why.
func (p Printer) PauseLine(pause *dispatcherv1.Pause) string {
	if item := pause.GetWorkItem(); item != "" {
		return Clean(item) + " is paused" + p.PauseStory(pause)
	}
	return "all work items are paused" + p.PauseStory(pause)
}

// PauseStory says since when a pause stands, by whom and why.
func (p Printer) PauseStory(pause *dispatcherv1.Pause) string {
	line := " since " + p.When(pause.GetCreateTime())
	if pause.GetWho() != "" {
		line += " by " + Clip(pause.GetWho(), 100)
	}
	if pause.GetReason() != "" {
		line += ": " + Clip(pause.GetReason(), 300)
	}
	return line
}
