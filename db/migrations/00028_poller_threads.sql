-- +goose Up
alter table poller.events drop constraint events_kind, add constraint events_kind
  check (kind in ('opened', 'comment', 'message', 'review', 'review_comment', 'state', 'check'));
alter table poller.events
  -- The pull request that it happened at, by its node id; empty for the item's own thread.
  add column thread text not null default '',
  -- What the author is to the repository, as the provider said; empty when it did not.
  add column association text not null default '',
  -- The commit that a result of CI is about.
  add column commit_sha text not null default '',
  -- When a result of CI went stale, because another commit became the head; null while it is the head's.
  add column stale_at timestamptz;
create index events_checks on poller.events (thread) where kind = 'check';
-- For the breaker: what was written about an item lately.
create index events_posts on poller.events (work_item, upstream_at) where kind in ('comment', 'review', 'review_comment');

alter table poller.items
  -- When it was first seen, on the upstream's clock, and the newest change of it that was heard of.
  add column baselined_upstream timestamptz,
  add column shown_at timestamptz,
  -- When it was last closed, on the upstream's clock; kept when it is opened again. Null when it never was, or when that is not known.
  add column closed_upstream timestamptz;
-- What was said on pull requests before they were read at all is no event.
update poller.items set baselined_upstream = now() where baselined_at is not null;

-- Pull requests that were seen, and the work item that each belongs to.
create table poller.pulls (
  node_id text primary key,
  source text not null,
  -- Where it was last seen upstream, as poller.items.
  place text not null,
  number bigint not null,
  title text not null default '',
  url text not null default '',
  -- Null while it belongs to no item that we know.
  work_item text references poller.items (work_item),
  rule text not null default '',
  -- What it closes, as the provider said: refs of issues, whether we know them or not.
  closes text[] not null default '{}',
  head_sha text not null default '',
  state text not null default 'open' constraint pulls_state check (state in ('open', 'closed', 'merged')),
  closed_upstream timestamptz,
  -- The newest change of it that was heard of, on the upstream's clock.
  shown_at timestamptz,
  -- What it looked like when its thread was last read, on the upstream's clock; null until it was read.
  seen_at timestamptz,
  seen_updated_at timestamptz,
  posts_since timestamptz,
  -- When it was last seen belonging to no item: what was written by then is no event of the item that it comes to.
  unlinked_at timestamptz,
  first_seen_at timestamptz not null default now()
);
create index pulls_place on poller.pulls (place, number);
create index pulls_item on poller.pulls (work_item) where work_item is not null;

-- How pull requests came to their items, and left them: a history that is only added to.
create table poller.links (
  id bigint generated always as identity primary key,
  pull_node_id text not null,
  place text not null,
  number bigint not null,
  -- Null for one that was taken off its item.
  work_item text,
  rule text not null constraint links_rule check (rule in ('closing_reference', 'branch', 'itself', 'by_hand')),
  detail text not null default '',
  who text not null default '',
  created_at timestamptz not null default now()
);
create index links_pull on poller.links (pull_node_id, id);
create index links_item on poller.links (work_item, id);

alter table poller.log drop constraint log_type, add constraint log_type check (type in ('poll.comment_failed', 'poll.comment_cancelled',
  'poll.rearmed', 'poll.retried', 'poll.settled', 'poll.source_failed', 'poll.source_recovered', 'poll.notice_posted', 'poll.notice_failed',
  'poll.pull_linked', 'poll.breaker_tripped'));

-- +goose Down
delete from poller.log where type in ('poll.pull_linked', 'poll.breaker_tripped');
alter table poller.log drop constraint log_type, add constraint log_type check (type in ('poll.comment_failed', 'poll.comment_cancelled',
  'poll.rearmed', 'poll.retried', 'poll.settled', 'poll.source_failed', 'poll.source_recovered', 'poll.notice_posted', 'poll.notice_failed'));
drop table poller.links;
drop table poller.pulls;
alter table poller.items drop column closed_upstream, drop column shown_at, drop column baselined_upstream;
delete from poller.events where kind in ('review', 'review_comment', 'state', 'check');
alter table poller.events drop column thread, drop column association, drop column commit_sha, drop column stale_at;
alter table poller.events drop constraint events_kind, add constraint events_kind check (kind in ('opened', 'comment', 'message'));
