-- +goose Up
alter table poller.items
  -- What it said when it was last read, up to a length: the context of a conversation that has not seen it.
  add column body text not null default '',
  -- When an event that carries the context was last delivered; null when none was.
  add column context_at timestamptz;
alter table poller.events
  -- What was written, up to a length, of whom may steer: for the context of a later event.
  add column excerpt text not null default '',
  -- Whether the text carries the context; null until that is decided, just before it is first asked about.
  add column with_context boolean;
-- What may have been asked about must be asked about with the same text.
update poller.events set with_context = (kind = 'opened' and text <> '');
update poller.items i set context_at = now()
where exists (select from poller.events e where e.work_item = i.work_item and e.kind = 'opened' and e.state = 'delivered');

-- +goose Down
alter table poller.events drop column excerpt, drop column with_context;
alter table poller.items drop column body, drop column context_at;
