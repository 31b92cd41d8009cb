-- +goose Up
-- A label that has a team run is an event of its own each time it is put on.
alter table poller.events drop constraint events_kind, add constraint events_kind
  check (kind in ('opened', 'comment', 'message', 'review', 'review_comment', 'state', 'check', 'labelled'));

-- +goose Down
delete from poller.events where kind = 'labelled';
alter table poller.events drop constraint events_kind, add constraint events_kind
  check (kind in ('opened', 'comment', 'message', 'review', 'review_comment', 'state', 'check'));
