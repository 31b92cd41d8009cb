-- +goose NO TRANSACTION
-- +goose Up
-- For the list of what has a reason, and for the counts of all: they read this in the place of every event with its text. Few values repeat, so
-- it is small.
drop index concurrently if exists poller.events_by_reason;
create index concurrently events_by_reason on poller.events (reason, state);

-- +goose Down
drop index concurrently if exists poller.events_by_reason;
