-- +goose Up
-- What is due, the longest first: a claim reads as many of them as it needs, however many wait.
create index events_due on poller.events ((coalesce(lease_until, next_look)), id) where state in ('pending', 'leased', 'held');

-- +goose Down
drop index poller.events_due;
