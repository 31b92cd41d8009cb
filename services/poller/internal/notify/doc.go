// Package notify tells people on the ticket what needs them: an event that gave up, may not have arrived, or has been held for long,
// and where an item's agent was started. It puts reactions on what was taken, delivered or not delivered, and has orders to muxpost itself
// carried out and answered. It takes one post after another from the outbox, in which they were put together with the change that they
// tell of, and writes each once: before a notice is written, its mark is looked for, because an answer that was lost may have been a
// success.
//
// It runs apart from deliveries and cannot delay one. It knows nothing of HTTP, SQL or schedules, and what it writes holds an id, a
// link, a count and what to do: nothing that anybody wrote.
package notify
