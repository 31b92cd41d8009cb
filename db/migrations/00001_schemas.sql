-- +goose Up
create schema dispatcher;
create schema poller;
create schema river;

-- +goose Down
drop schema river;
drop schema poller;
drop schema dispatcher;
