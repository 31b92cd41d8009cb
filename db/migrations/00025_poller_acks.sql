-- +goose Up
-- A person's word to have seen something that needs a person: an entry of the list is kept off it while its state is this one.
create table poller.acks (
  entry_id text primary key,
  state text not null,
  -- The event that it is about, with which it is forgotten; empty when it is about none.
  delivery_id text not null default '',
  who text not null default '',
  reason text not null default '',
  created_at timestamptz not null default now()
);

-- +goose Down
drop table poller.acks;
