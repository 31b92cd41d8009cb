-- +goose Up
-- What operators said of hosts, and which tmuxd is behind a name. A host without an address is one that the configuration names.
create table dispatcher.hosts (
    name       text primary key,
    address    text not null default '',
    instance   text not null default '',
    draining   boolean not null default false,
    reason     text not null default '',
    who        text not null default '',
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
);

-- Sessions that were left on a host from which their work item was moved away. They are never delivered to, and ended by an operator alone.
create table dispatcher.superseded (
    work_item       text not null,
    host            text not null,
    stamp           text not null default '',
    target          text not null default '',
    harness         text not null default '',
    conversation_id text not null default '',
    directory       text not null default '',
    created_at      timestamptz not null default now(),
    primary key (work_item, host)
);

create index sessions_of_host on dispatcher.sessions (host, work_item);

-- +goose Down
drop index dispatcher.sessions_of_host;
drop table dispatcher.superseded;
drop table dispatcher.hosts;
