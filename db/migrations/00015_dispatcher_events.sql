-- +goose Up
-- Whoever follows events is woken at the commit that brings some. Where that is not heard, a look each second finds them.
-- +goose StatementBegin
create function dispatcher.announce_events() returns trigger language plpgsql as $$
begin
    if exists (select from added) then
        perform pg_notify('dispatcher_events', '');
    end if;
    return null;
end
$$;
-- +goose StatementEnd
create trigger announce_events after insert on dispatcher.events
    referencing new table as added for each statement execute function dispatcher.announce_events();

create index events_of_type on dispatcher.events (type, seq);

-- The one row says up to which number events may have been deleted by age, so that a reader who was away for longer can be told. It is
-- written by the statement that deletes. What was deleted before there was this table is taken to be what is missing at the beginning.
create table dispatcher.events_forgotten (
    one_row boolean primary key default true check (one_row),
    through bigint not null
);
insert into dispatcher.events_forgotten (through) select coalesce(min(seq) - 1, 0) from dispatcher.events;

-- +goose Down
drop table dispatcher.events_forgotten;
drop index dispatcher.events_of_type;
drop trigger announce_events on dispatcher.events;
drop function dispatcher.announce_events();
