-- +goose Up
create table poller.items (
  work_item text primary key,
  -- The provider's own id; null until the item was seen upstream.
  node_id text unique,
  source text not null,
  -- Where it was last seen upstream, the host included: a renamed repository's items keep their work_item.
  place text not null,
  number bigint not null,
  title text not null default '',
  url text not null default '',
  first_seen_at timestamptz not null default now(),
  -- When its opening event and the comments that were there came into the ledger; null until then.
  baselined_at timestamptz,
  last_polled_at timestamptz,
  -- What the item looked like when its comments were last read, on the upstream's clock.
  seen_at timestamptz,
  seen_updated_at timestamptz,
  seen_comments integer not null default 0,
  comments_since timestamptz,
  -- When it was seen closed or gone; null while it is open.
  closed_at timestamptz
);
create index items_place on poller.items (place) where closed_at is null;

create table poller.events (
  id bigint generated always as identity primary key,
  delivery_id text not null constraint events_delivery_id unique,
  natural_key text not null constraint events_natural_key unique,
  work_item text not null references poller.items (work_item),
  node_id text not null default '',
  source text not null,
  kind text not null constraint events_kind check (kind in ('opened', 'comment', 'message')),
  author text not null default '',
  url text not null default '',
  title text not null default '',
  -- As the agent is to read it; empty for an event that was settled when it came in.
  text text not null default '',
  harness text not null default '',
  -- The order within the item: by time, then by what tells events of one second apart.
  upstream_at timestamptz not null,
  upstream_order bigint not null default 0,
  state text not null constraint events_state
    check (state in ('pending', 'leased', 'held', 'delivered', 'settled', 'dropped', 'gave_up', 'cancelled')),
  reason text not null default '',
  detail text not null default '',
  tries integer not null default 0,
  budget integer not null,
  silences integer not null default 0,
  unproven_since timestamptz,
  next_look timestamptz,
  lease_holder text,
  lease_until timestamptz,
  traceparent text not null default '',
  trace_id text not null default '',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint events_waiting_has_next_look check (state not in ('pending', 'held') or next_look is not null),
  constraint events_leased_has_lease check ((state = 'leased') = (lease_holder is not null and lease_until is not null))
);
-- The queue of each item; small, because it holds only what is on its way.
create index events_waiting on poller.events (work_item, upstream_at, upstream_order, id)
  where state in ('pending', 'leased', 'held');
-- One event of an item at a time, whatever two claims do.
create unique index events_one_leased on poller.events (work_item) where state = 'leased';
create index events_by_item on poller.events (work_item, id);
create index events_by_state on poller.events (state, id);

create table poller.sources (
  name text primary key,
  last_look_at timestamptz,
  last_success_at timestamptz,
  last_error text not null default '',
  -- A limit of the source's: it is not asked before this.
  not_before timestamptz,
  -- How often in a row it said so without saying for how long.
  throttles integer not null default 0,
  lease_holder text,
  lease_until timestamptz,
  -- When each repository was last read without an error, by name.
  cursors jsonb not null default '{}'
);

-- +goose StatementBegin
create function poller.announce_events() returns trigger language plpgsql as $$
begin
  if exists (select from added where state = 'pending') then
    perform pg_notify('poller_events', '');
  end if;
  return null;
end
$$;
-- +goose StatementEnd

create trigger announce_events after insert on poller.events
  referencing new table as added for each statement execute function poller.announce_events();

-- +goose Down
drop table poller.events;
drop function poller.announce_events();
drop table poller.sources;
drop table poller.items;
