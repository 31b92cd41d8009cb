-- +goose Up
-- What the agents of living sessions do, as their hosts told it last. It is told far more often than a session's record changes, and before that
-- names the incarnation: so it has rows of its own, one for each host on which an item has a session. Losing them loses nothing, the hosts tell all of it again.
create table dispatcher.activities (
    work_item  text not null,
    host       text not null,
    stamp      text not null,
    activity   text not null,
    detail     text not null default '',
    since      timestamptz,
    seen_at    timestamptz,
    updated_at timestamptz not null default now(),
    primary key (work_item, host)
);

-- +goose Down
drop table dispatcher.activities;
