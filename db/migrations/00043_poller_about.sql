-- +goose Up
-- What an event is about, for people: the file and the line of an inline comment, the name of a result of CI; empty for any other.
alter table poller.events add column about text not null default '';

-- +goose Down
alter table poller.events drop column about;
