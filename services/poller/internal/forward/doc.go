// Package forward carries events out of the ledger, each to the dispatcher, until each has ended: the first that waits of every
// work item, one at a time, items beside each other. What an answer does to an event is core/ledger's to say.
//
// An event is held under a lease while it is asked about. Where the lease was lost, what came of the asking is dropped: whoever
// has it now asks again under the same delivery id, and nothing is delivered twice.
//
// It knows nothing of sources, SQL or gRPC, and never logs or traces what anybody wrote.
package forward
