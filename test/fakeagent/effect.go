package main

// effectKind says what the shell around the model must do.
type effectKind uint8

const (
	effRecord  effectKind = iota // append line to the transcript
	effApprove                   // note beside the transcripts that something was approved: text is the choice
	effFork                      // go on in a new conversation with the id text
	effExit                      // end with status code, and say text on the normal screen
)

// effect is one thing to be done outside the model, in order.
type effect struct {
	kind effectKind
	line line
	text string
	code int
}

// record is the effect that appends a line of a type with a text.
func record(kind, text string) effect {
	return effect{kind: effRecord, line: line{Type: kind, Text: text}}
}

// leave is how a program that was working ends: the transcript says so first.
func leave(code int) []effect {
	return []effect{
		{kind: effRecord, line: line{Type: "exit", Code: &code}},
		{kind: effExit, code: code},
	}
}

// approval is how a dialog ends.
func approval(choice string) []effect {
	out := []effect{{kind: effRecord, line: line{Type: "approval", Choice: choice}}}
	if choice != choiceNo {
		out = append(out, effect{kind: effApprove, text: choice})
	}
	return out
}
