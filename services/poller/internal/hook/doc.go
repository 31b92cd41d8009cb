// Package hook takes what a source tells by itself: a webhook. It is written down first, in an inbox, and acknowledged; then it is
// handled, one message of a thread at a time, in the order in which the messages came.
//
// Nothing depends on a webhook. One that never comes, comes twice, or comes after a later one changes nothing in the end, because a look
// at the source finds the same, under the same natural key. That a webhook did not come is noticed: what a look found and no webhook had
// told, a while after it happened, is a gap, and is said once.
//
// It knows nothing of HTTP, of signatures, of SQL, nor of what a payload looks like; and never logs or traces one.
package hook
