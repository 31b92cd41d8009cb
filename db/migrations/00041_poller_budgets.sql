-- +goose Up
-- How far each repository of a source was read, and when it is read again.
create table poller.repositories (
  source text not null references poller.sources (name) on delete cascade,
  -- As owner/repo, in lower case.
  repository text not null,
  -- When a look last came to it, and when one last read it without an error.
  last_look_at timestamptz not null default now(),
  last_success_at timestamptz,
  last_error text not null default '',
  last_error_at timestamptz,
  -- It is left alone until then; null when the next look reads it.
  next_look_at timestamptz,
  -- When it was last read in full, whatever the source said had not changed.
  full_read_at timestamptz,
  -- How many looks in a row found nothing new.
  quiet integer not null default 0,
  primary key (source, repository)
);
insert into poller.repositories (source, repository, last_look_at, last_success_at)
select s.name, c.key, c.value::timestamptz, c.value::timestamptz from poller.sources s, jsonb_each_text(s.cursors) c;
alter table poller.sources drop column cursors;

-- +goose Down
alter table poller.sources add column cursors jsonb not null default '{}';
update poller.sources s set cursors = r.cursors from (
  select source, jsonb_object_agg(repository, last_success_at) as cursors from poller.repositories where last_success_at is not null group by source
) r where r.source = s.name;
drop table poller.repositories;
