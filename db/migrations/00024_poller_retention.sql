-- +goose Up
alter table poller.items
  -- The newest upstream time of a comment whose rows were deleted by age: one that is unknown and not newer was known once.
  add column forgotten_through timestamptz;
create index events_finished on poller.events (updated_at) where state in ('delivered', 'settled', 'cancelled');

-- +goose Down
drop index poller.events_finished;
alter table poller.items drop column forgotten_through;
