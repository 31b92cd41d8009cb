-- +goose Up
-- Invitations of hosts, each of which counts once. Of the secret only its SHA-256 is here.
create table access.invitations (
    id         text primary key,
    host       text not null,
    hash       bytea not null check (length(hash) = 32),
    who        text not null default '',
    created_at timestamptz not null default now(),
    expires_at timestamptz not null,
    used_at    timestamptz
);

-- +goose Down
drop table access.invitations;
