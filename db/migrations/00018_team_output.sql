-- +goose Up
-- Whether an attempt showed more than what is kept of it.
alter table dispatcher.team_attempts add column cut boolean not null default false;

-- +goose Down
alter table dispatcher.team_attempts drop column cut;
