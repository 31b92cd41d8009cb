package fakegithub

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// closing finds what "Linking a pull request to an issue" calls a keyword: any of nine words in any case, perhaps with a colon, before
// the number of an issue, perhaps with its repository.
var closing = regexp.MustCompile(`(?i)\b(?:close[sd]?|fix(?:es|ed)?|resolve[sd]?):?\s+(?:([\w.-]+/[\w.-]+))?#(\d+)\b`)

// closes is what closingIssuesReferences shows: the issues that were linked by hand, and those that the text closes by a keyword, which
// counts only when the base is the default branch. Here, all are issues of the same repository.
func (is *issue) closes() []*issue {
	numbers := slices.Clone(is.Pull.Closes)
	if is.Pull.Base == defaultBranch {
		for _, found := range closing.FindAllStringSubmatch(is.Body, -1) {
			if found[1] == "" || strings.EqualFold(found[1], is.repo.fullName()) {
				number, _ := strconv.Atoi(found[2]) // digits; what is too long for an int names no issue
				numbers = append(numbers, number)
			}
		}
	}
	var out []*issue
	for _, number := range numbers {
		if linked := is.repo.issue(number); linked != nil && linked.Pull == nil && !slices.Contains(out, linked) {
			out = append(out, linked)
		}
	}
	return out
}
