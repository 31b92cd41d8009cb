// Package poll reads sources and decides what becomes of what it finds there: the first sight of a work item is its opening
// event, what had been said before is context, and each comment after that is an event or is settled on the record, by who
// wrote it. A comment that says something else than before is an event again, in place of the one before where that is not too late.
// One that complete readings do not show for a minute, and that is not there when it is asked for, was deleted; a reading that failed
// shows nothing. It also takes events by hand, and has events that ended asked about again: by a person's word, or because an occupied
// name may be free.
//
// What it decides goes into the ledger before anything is forgotten: an item, its events and how far it was read are written
// together, so that a look that fails half way is simply made again. Nothing is ever read twice into two rows, because a row
// is known by its natural key.
//
// It knows nothing of HTTP, SQL or GitHub's API: a Source is read, and a Ledger is written, through interfaces. It knows
// nothing of sessions, and never logs or traces what anybody wrote.
package poll
