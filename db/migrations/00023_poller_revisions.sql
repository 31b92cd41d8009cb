-- +goose Up
alter table poller.events
  -- The natural key without the revision, and the revision alone: what an object said then. Both are empty for what is never edited.
  -- The revision is also empty for what came in before revisions were kept: what it says when it is next seen is taken for it.
  add column object_key text not null default '',
  add column revision text not null default '',
  -- When the object was last changed upstream as it said this; what is older is no news.
  add column revised_at timestamptz,
  -- The delivery of the revision that replaced this one; empty while it is the newest.
  add column superseded_by text not null default '',
  -- True of a revision whose text says that it is an edit, because an earlier one may be in the conversation.
  add column edited boolean not null default false,
  -- When a complete listing first lacked it, on the source's clock; null while it is listed.
  add column missing_since timestamptz;
-- Up to here every revision was written as |1.
update poller.events set object_key = left(natural_key, -2) where kind = 'comment';
create index events_by_object on poller.events (object_key, id) where object_key <> '';
create index events_missing on poller.events (work_item) where missing_since is not null and deleted_at is null;

-- +goose Down
alter table poller.events
  drop column object_key, drop column revision, drop column revised_at, drop column superseded_by, drop column edited, drop column missing_since;
