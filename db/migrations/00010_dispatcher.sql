-- +goose Up
create sequence dispatcher.fencing_token as bigint;

-- Which session owns a work item. The target is minted from the item alone; its index refuses the collision of two items.
create table dispatcher.sessions (
    work_item       text primary key,
    node_id         text not null default '',
    target          text not null,
    host            text not null,
    harness         text not null default '',
    conversation_id text not null default '',
    lineage         text[] not null default '{}',
    stamp           text not null default '',
    session_id      text not null default '',
    pane_id         text not null default '',
    pane_pid        bigint not null default 0,
    server_pid      bigint not null default 0,
    server_started  timestamptz,
    socket_path     text not null default '',
    directory       text not null default '',
    created_at      timestamptz not null default now(),
    updated_at      timestamptz not null default now(),
    constraint sessions_target_key unique (target)
);

-- One event on its way to an agent. Its text is never stored: the fingerprint tells whether a repeat is one.
create table dispatcher.deliveries (
    delivery_id     text primary key,
    work_item       text not null,
    node_id         text not null default '',
    kind            text not null,
    fingerprint     bytea not null,
    harness         text not null default '',
    outcome         text not null default 'in_progress' check (outcome in
                    ('in_progress', 'delivered', 'held', 'waiting', 'failed', 'dropped', 'unconfirmed')),
    reason          text not null default '',
    detail          text not null default '',
    remedy          text not null default '',
    how             text not null default '',
    host            text not null default '',
    target          text not null default '',
    conversation_id text not null default '',
    asked           integer not null default 1,
    traceparent     text not null default '',
    trace_id        text not null default '',
    steps           text[] not null default '{}',
    created_at      timestamptz not null default now(),
    updated_at      timestamptz not null default now()
);
create index deliveries_newest on dispatcher.deliveries (created_at desc, delivery_id desc);
create index deliveries_of_item on dispatcher.deliveries (work_item, created_at desc, delivery_id desc);

-- A row stays when its lease is given back, so that a token can be compared for as long as the item is known.
create table dispatcher.leases (
    work_item text primary key,
    holder    text not null,
    token     bigint not null,
    until     timestamptz not null
);

create table dispatcher.events (
    seq         bigint generated always as identity primary key,
    type        text not null,
    time        timestamptz not null default clock_timestamp(),
    work_item   text not null default '',
    delivery_id text not null default '',
    fields      jsonb not null default '{}',
    trace_id    text not null default ''
);
create index events_of_item on dispatcher.events (work_item, seq);
create index events_of_delivery on dispatcher.events (delivery_id, seq);

-- A reader resumes by seq, so no row may appear below one that it has seen. Writers therefore take turns from their first event
-- to their commit: a number is given out only once all before it can be read, or never will be. (To hide rows above the oldest
-- running transaction is not enough: the order of transaction ids is not that of seq.) Every writer is one statement, so that no
-- client can stop in the middle of its turn.
-- +goose StatementBegin
create function dispatcher.take_turns() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock(tg_relid::bigint);
    return null;
end
$$;
-- +goose StatementEnd
create trigger take_turns before insert on dispatcher.events
    for each statement execute function dispatcher.take_turns();

-- +goose Down
drop table dispatcher.events;
drop function dispatcher.take_turns();
drop table dispatcher.leases;
drop table dispatcher.deliveries;
drop table dispatcher.sessions;
drop sequence dispatcher.fencing_token;
