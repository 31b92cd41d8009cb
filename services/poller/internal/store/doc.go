// Package store keeps the poller's items, events and sources in Postgres, in the schema poller.
//
// Every time that decides anything is the database's. An event is claimed by one statement, which leases the first event of an
// item that waits; two claims never get the same event, nor two events of one item, because a unique index forbids it. Whatever
// is written at the end of a claim is written only while the claim's lease stands.
//
// What people follow (poller.log) and what is to be written upstream (poller.outbox) is written in the transaction of the change
// that it tells of, so that neither is ever without the other. Whoever writes to the log has his turn until his commit; one that stands
// still in the middle is ended by the server (db.InTx), so that nobody waits for a process that is not there.
//
// It knows nothing of what the events mean, of the dispatcher, or of any source's API. Text of events goes in and out, and
// never into a log or a span.
package store
