-- +goose Up
alter table poller.events
  -- What becomes one text whenever two or more of it wait (the results of CI at one commit); empty for nothing.
  add column together text not null default '',
  -- The order to muxpost itself that it is, as it is carried out; empty for any other.
  add column command text not null default '';
-- What became a part of the text of an event.
create index events_coalesced on poller.events (superseded_by) where reason = 'coalesced';

alter table poller.items
  -- When it was told, or to be told, on the ticket where its agent was started: once, whatever happens later.
  add column start_told_at timestamptz;

alter table poller.outbox
  -- What a post needs beyond its event: where an agent was started, what a command is answered with.
  add column words jsonb not null default '{}';
alter table poller.outbox drop constraint outbox_post, add constraint outbox_post check (post in ('notice_gave_up', 'notice_unconfirmed',
  'notice_held', 'notice_started', 'reaction_eyes', 'reaction_hooray', 'reaction_confused', 'command', 'answer'));

-- +goose Down
delete from poller.outbox where post in ('notice_started', 'reaction_eyes', 'reaction_hooray', 'command', 'answer');
alter table poller.outbox drop constraint outbox_post, add constraint outbox_post
  check (post in ('notice_gave_up', 'notice_unconfirmed', 'notice_held', 'reaction_confused'));
alter table poller.outbox drop column words;
alter table poller.items drop column start_told_at;
drop index poller.events_coalesced;
alter table poller.events drop column together, drop column command;
