-- +goose NO TRANSACTION
-- +goose Up
-- The history of one pull request, by the name that people know it by.
drop index concurrently if exists poller.links_place;
create index concurrently links_place on poller.links (place, number, id);

-- +goose Down
drop index concurrently if exists poller.links_place;
