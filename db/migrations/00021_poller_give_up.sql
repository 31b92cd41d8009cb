-- +goose Up
alter table poller.events
  -- The versions that spent a budget on it, or were given one; empty for an event that never gave up.
  add column gave_up_versions text[] not null default '{}',
  -- The version that re-armed it, for which it is kept for a while.
  add column armed_for text not null default '',
  -- Since when it has been held, through silence too.
  add column held_since timestamptz,
  -- When it was seen to be deleted upstream. One that had been delivered by then is only marked so.
  add column deleted_at timestamptz;
create index events_gave_up on poller.events (work_item) where state = 'gave_up';

-- What the poller did, for people to follow.
create table poller.log (
  seq bigint generated always as identity primary key,
  type text not null constraint log_type check (type in ('poll.comment_failed', 'poll.comment_cancelled', 'poll.rearmed',
    'poll.source_failed', 'poll.source_recovered', 'poll.notice_posted', 'poll.notice_failed')),
  time timestamptz not null default clock_timestamp(),
  work_item text not null default '',
  delivery_id text not null default '',
  source text not null default '',
  fields jsonb not null default '{}',
  trace_id text not null default ''
);
create index log_by_item on poller.log (work_item, seq) where work_item <> '';
create index log_by_delivery on poller.log (delivery_id, seq) where delivery_id <> '';
-- Who reads on from a sequence number must skip no late commit, so writers take turns from here to their commit: see dispatcher.events.
-- +goose StatementBegin
create function poller.take_turns() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock(tg_relid::bigint);
    return null;
end
$$;
-- +goose StatementEnd
create trigger take_turns before insert on poller.log
    for each statement execute function poller.take_turns();

-- What is to be written upstream: made in the transaction of the change that it tells of, and carried out apart from deliveries.
create table poller.outbox (
  id bigint generated always as identity primary key,
  event_id bigint not null references poller.events (id) on delete cascade,
  post text not null constraint outbox_post
    check (post in ('notice_gave_up', 'notice_unconfirmed', 'notice_held', 'reaction_confused')),
  -- Skipped: it was no longer true when its turn came. It is made to wait again if it becomes true again.
  state text not null default 'waiting' constraint outbox_state check (state in ('waiting', 'done', 'skipped', 'failed')),
  refusals integer not null default 0,
  silences integer not null default 0,
  not_before timestamptz not null default now(),
  lease_holder text,
  lease_until timestamptz,
  last_error text not null default '',
  created_at timestamptz not null default now(),
  ended_at timestamptz,
  constraint outbox_once unique (event_id, post)
);
create index outbox_waiting on poller.outbox (not_before) where state = 'waiting';

alter table poller.sources
  -- Why the latest write to the source failed, and since when writes fail; empty and null when it did not.
  add column notice_error text not null default '',
  add column notice_error_at timestamptz,
  -- A limit for writes: nothing is written before this.
  add column notice_not_before timestamptz;

-- +goose Down
alter table poller.sources drop column notice_error, drop column notice_error_at, drop column notice_not_before;
drop table poller.outbox;
drop table poller.log;
drop function poller.take_turns();
drop index poller.events_gave_up;
alter table poller.events
  drop column gave_up_versions, drop column armed_for, drop column held_since, drop column deleted_at;
