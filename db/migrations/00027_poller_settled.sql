-- +goose Up
alter table poller.log drop constraint log_type, add constraint log_type check (type in ('poll.comment_failed', 'poll.comment_cancelled',
  'poll.rearmed', 'poll.retried', 'poll.settled', 'poll.source_failed', 'poll.source_recovered', 'poll.notice_posted', 'poll.notice_failed'));

-- +goose Down
delete from poller.log where type = 'poll.settled';
alter table poller.log drop constraint log_type, add constraint log_type check (type in ('poll.comment_failed', 'poll.comment_cancelled',
  'poll.rearmed', 'poll.retried', 'poll.source_failed', 'poll.source_recovered', 'poll.notice_posted', 'poll.notice_failed'));
