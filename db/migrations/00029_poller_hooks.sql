-- +goose Up
-- What was told by itself (a webhook), as it came in: written before it is answered, and then handled.
create table poller.hooks (
  id bigint generated always as identity primary key,
  source text not null,
  -- The provider's id of the message: sent again, it is the same.
  guid text not null,
  event text not null,
  action text not null default '',
  -- As owner/repo, in lower case.
  repository text not null,
  -- The issue or pull request, 0 for what is about a commit, and the commit, where it is known.
  number bigint not null default 0,
  sha text not null default '',
  -- What is handled one after another.
  thread text not null generated always as
    (repository || case when number > 0 then '#' || number::text when sha <> '' then '@' || sha else '' end) stored,
  -- The provider's own id of what it is about, as in natural keys; empty where it has none.
  object text not null default '',
  -- The body as it was signed; null once it has been handled.
  payload bytea,
  state text not null default 'waiting' constraint hooks_state check (state in ('waiting', 'done', 'failed')),
  tries integer not null default 0,
  last_error text not null default '',
  next_look timestamptz not null default now(),
  lease_holder text,
  lease_until timestamptz,
  received_at timestamptz not null default clock_timestamp(),
  ended_at timestamptz,
  constraint hooks_once unique (source, guid),
  constraint hooks_waiting_has_payload check (state <> 'waiting' or payload is not null),
  constraint hooks_lease check ((lease_holder is null) = (lease_until is null) and (lease_holder is null or state = 'waiting'))
);
-- Compressing it would cost more than writing it: it is gone in a moment.
alter table poller.hooks alter column payload set storage external;
create index hooks_waiting on poller.hooks (source, thread, id) where state = 'waiting';
create index hooks_failed on poller.hooks (source, id) where state = 'failed';
-- One message of a thread at a time, whatever two claims do.
create unique index hooks_one_leased on poller.hooks (source, thread) where lease_holder is not null;
create index hooks_received on poller.hooks (source, received_at);
create index hooks_object on poller.hooks (source, object, received_at) where object <> '';

create table poller.hook_sources (
  source text primary key,
  -- Since when its webhooks are taken.
  since timestamptz not null default clock_timestamp(),
  -- Of what looks found up to then it is known whether it had been told.
  checked_through timestamptz not null default clock_timestamp(),
  -- The latest gap: when it was found, how many events it had, and when the first and the last of them happened upstream.
  gap_at timestamptz,
  gap_count integer not null default 0,
  gap_from timestamptz,
  gap_to timestamptz
);
-- What was found lately.
create index events_found on poller.events (source, created_at);

alter table poller.log drop constraint log_type, add constraint log_type check (type in ('poll.comment_failed', 'poll.comment_cancelled',
  'poll.rearmed', 'poll.retried', 'poll.settled', 'poll.source_failed', 'poll.source_recovered', 'poll.notice_posted', 'poll.notice_failed',
  'poll.pull_linked', 'poll.breaker_tripped', 'poll.gap_found'));

-- +goose Down
delete from poller.log where type = 'poll.gap_found';
alter table poller.log drop constraint log_type, add constraint log_type check (type in ('poll.comment_failed', 'poll.comment_cancelled',
  'poll.rearmed', 'poll.retried', 'poll.settled', 'poll.source_failed', 'poll.source_recovered', 'poll.notice_posted', 'poll.notice_failed',
  'poll.pull_linked', 'poll.breaker_tripped'));
drop index poller.events_found;
drop table poller.hook_sources;
drop table poller.hooks;
