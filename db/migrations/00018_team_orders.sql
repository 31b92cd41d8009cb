-- +goose Up
-- Whether an attempt showed more than what is kept of it.
alter table dispatcher.team_attempts add column cut boolean not null default false;

-- What the order is called that a run was begun by, where it has a name: asked again, it finds that run.
alter table dispatcher.team_runs add column order_key text not null default '';
create unique index team_runs_order on dispatcher.team_runs (order_key) where order_key <> '';

-- +goose Down
alter table dispatcher.team_runs drop column order_key;
alter table dispatcher.team_attempts drop column cut;
