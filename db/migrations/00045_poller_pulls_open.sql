-- +goose NO TRANSACTION
-- +goose Up
-- Pull requests are kept for good, and a look asks for those that are open, a failed check for those at its commit. An index that was broken off
-- half way serves nobody, so it is made anew.
drop index concurrently if exists poller.pulls_open;
create index concurrently pulls_open on poller.pulls (place) where state = 'open';
drop index concurrently if exists poller.pulls_head;
create index concurrently pulls_head on poller.pulls (place, head_sha) where work_item is not null;

-- +goose Down
drop index concurrently if exists poller.pulls_head;
drop index concurrently if exists poller.pulls_open;
