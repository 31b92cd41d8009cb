-- +goose Up
-- Incarnations that were seen dead by a delivery that would have started them again, each once. Those that count are too many at some point.
create table dispatcher.deaths (
    work_item text not null,
    stamp     text not null,
    counts    boolean not null default true,
    seen_at   timestamptz not null default now(),
    primary key (work_item, stamp)
);

-- Items whose agents are not started again by themselves. A row that was lifted is kept for its versions.
create table dispatcher.parks (
    work_item text primary key,
    deaths    integer not null,
    within    interval not null,
    detail    text not null default '',
    versions  text[] not null default '{}',
    lifted    boolean not null default false,
    since     timestamptz not null default now()
);

-- A session that was closed counts as none, and its row is kept for its lineage.
alter table dispatcher.sessions add column closed boolean not null default false;

-- Orders to end an agent that wait for its host: for the incarnation that they name, and for no other.
create table dispatcher.endings (
    work_item text primary key,
    closes    boolean not null,
    stamp     text not null,
    host      text not null default '',
    who       text not null default '',
    reason    text not null default '',
    grace     interval not null,
    detail    text not null default '',
    since     timestamptz not null default now()
);

-- +goose Down
drop table dispatcher.endings;
alter table dispatcher.sessions drop column closed;
drop table dispatcher.parks;
drop table dispatcher.deaths;
