package prompt

// sampleNonce is that of the samples on which templates are tried.
const sampleNonce = "SAMPLESAMPLESAMPLE"

// samples are events of a kind with everything that one can have, and with nothing that one may lack.
func samples(k Kind) []Data {
	full := Data{
		WorkItem: "github:octo/widget#7", On: "pull request octo/widget#8", Author: "alice", URL: "https://github.com/octo/widget/issues/7",
		Title: "A title", Body: "A body.", Thread: []Post{{Author: "bob", Body: "Before."}}, Verdict: "changes_requested", State: "closed",
		Path: "cmd/main.go", Line: 12, Side: "right", Hunk: "@@ -1 +1 @@\n+line", CheckName: "build", Conclusion: "failure",
		SHA: "0123456789abcdef0123456789abcdef01234567", Run: "42", Head: true,
	}
	if k == Digest {
		full.Entries = []Entry{{What: "New comment by alice", URL: full.URL, Text: "One."}, {What: "New comment by bob", Text: "Two."}}
	}
	edited, old := full, full
	edited.Edited, old.Head, old.Line = true, false, 0
	return []Data{full, edited, old, {WorkItem: full.WorkItem}}
}
