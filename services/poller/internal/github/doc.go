// Package github reads issues and their comments from a server that speaks GitHub's REST API: github.com, GitHub Enterprise,
// or anything alike. It also writes comments and reactions there, for who is told to.
//
// A request that repeats an earlier one is made conditional, so that what did not change costs nothing of the rate limit. Every
// wait and every body has a bound. What goes wrong comes out as one of few kinds: a limit that says when to come back, silence,
// or a refusal that names the repository and what to check.
//
// It knows nothing of what becomes of what it reads. It sends its token to the one server that it was made for, and nowhere
// else, and never logs.
package github
