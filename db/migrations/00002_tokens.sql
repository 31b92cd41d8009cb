-- +goose Up
-- Who may call the operator APIs of the central services, which all of them read.
create schema access;

-- Bearer tokens. Of the secret only its SHA-256 is here.
create table access.tokens (
    id         text primary key,
    name       text not null,
    role       text not null check (role in ('read', 'operate', 'admin')),
    hash       bytea not null check (length(hash) = 32),
    who        text not null default '',
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    revoked_by text not null default '',
    used_at    timestamptz
);

create index tokens_by_age on access.tokens (created_at desc, id);

-- +goose Down
drop table access.tokens;
drop schema access;
