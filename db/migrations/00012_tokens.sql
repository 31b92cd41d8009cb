-- +goose Up
-- The next fencing token: above every earlier one, and never below the clock in microseconds. A database that is restored goes back to an earlier
-- number, and its clock does not: so a lease that the restore forgot and a lease after it never have the same token, and the older one is lower.
-- Whoever draws one waits for whoever is drawing: a sequence could be set back between being read and being set.
-- +goose StatementBegin
create function dispatcher.next_token() returns bigint language plpgsql as $$
begin
    perform pg_advisory_xact_lock('dispatcher.fencing_token'::regclass::bigint);
    return setval('dispatcher.fencing_token',
        greatest(nextval('dispatcher.fencing_token'), (extract(epoch from clock_timestamp()) * 1000000)::bigint));
end
$$;
-- +goose StatementEnd

-- +goose Down
drop function dispatcher.next_token();
