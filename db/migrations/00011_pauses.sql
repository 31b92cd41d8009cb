-- +goose Up
-- What an operator holds back: the deliveries of one work item, or those of all (the row without one).
create table dispatcher.pauses (
    work_item  text primary key,
    reason     text not null default '',
    who        text not null default '',
    created_at timestamptz not null default now()
);

-- Those that a person may have to look at are few among many that were delivered.
create index deliveries_undelivered on dispatcher.deliveries (outcome, created_at desc, delivery_id desc) where outcome <> 'delivered';

-- +goose Down
drop index dispatcher.deliveries_undelivered;
drop table dispatcher.pauses;
