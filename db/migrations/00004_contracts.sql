-- +goose Up
-- Migrations that took away what an earlier release needs. A build that does not know one of these does not work with this database; of
-- every other one that it does not know, it need not know anything.
create table public.muxpost_contracts (
    version       bigint primary key,
    -- The latest release that still needed what is gone.
    after_release text not null
);

-- +goose Down
drop table public.muxpost_contracts;
