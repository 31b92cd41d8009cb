-- +goose Up
-- A run of a team: what it was asked for, how far it has come, and who coordinates it. The epoch is the fencing token of that; every change of
-- what belongs to the run checks it in the statement that makes the change, and counts the version.
create table dispatcher.team_runs (
    run_id       text primary key,
    team         text not null,
    spec         text not null,
    total        integer not null,
    phase        text not null default 'plan' check (phase in
                 ('plan', 'prd', 'exec', 'verify', 'fix', 'complete', 'failed', 'cancelled')),
    phase_since  timestamptz not null default now(),
    version      bigint not null default 1,
    fix_loops    integer not null default 0,
    ending       text not null default '' check (ending in ('', 'failed', 'cancelled')),
    reason       text not null default '',
    detail       text not null default '',
    ended_by     text not null default '',
    waits        text not null default '',
    who          text not null default '',
    work_item    text not null default '',
    try          integer not null default 1,
    retries      integer not null default 0,
    backoff      interval not null default '0',
    retry_at     timestamptz,
    holder       text not null default '',
    epoch        bigint not null default 0,
    lease_until  timestamptz not null default now(),
    beat_at      timestamptz,
    traceparent  text not null default '',
    trace_id     text not null default '',
    created_at   timestamptz not null default now(),
    ended_at     timestamptz
);
-- A team has one run that is not over.
create unique index team_runs_live on dispatcher.team_runs (team) where phase not in ('complete', 'failed', 'cancelled');
create index team_runs_newest on dispatcher.team_runs (created_at desc, run_id desc);
create index team_runs_of_team on dispatcher.team_runs (team, created_at desc, run_id desc);
create index team_runs_retry on dispatcher.team_runs (retry_at) where retry_at is not null;
create index team_runs_open on dispatcher.team_runs (lease_until) where phase not in ('complete', 'failed', 'cancelled');

-- The tasks of a run's graph, and the steps of its phases (@plan, @prd, @verify, @fix).
create table dispatcher.team_tasks (
    run_id     text not null references dispatcher.team_runs on delete cascade,
    task_id    text not null,
    position   integer not null,
    kind       text not null,
    needs      text[] not null default '{}',
    state      text not null,
    class      text not null default '',
    why        text not null default '',
    number     integer not null,
    launches   integer not null default 0,
    requeues   integer not null default 0,
    version    bigint not null default 1,
    not_before timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    primary key (run_id, task_id)
);

-- A claim of a task, and the one launch that it is for. The id is made with the claim, before the host is asked for anything.
create table dispatcher.team_attempts (
    attempt_id   text primary key,
    run_id       text not null references dispatcher.team_runs on delete cascade,
    task_id      text not null,
    number       integer not null,
    epoch        bigint not null,
    token        bigint not null,
    host         text not null,
    worker       text not null,
    harness      text not null,
    directory    text not null,
    is_check     boolean not null default false,
    repository   text not null default '',
    branch       text not null default '',
    needs        text[] not null default '{}',
    head         text not null default '',
    uncommitted  integer not null default 0,
    prompt       text not null,
    state        text not null default 'claimed' check (state in ('claimed', 'running', 'ended')),
    fenced       boolean not null default false,
    fence_reason text not null default '',
    result       text not null default '',
    reason       text not null default '',
    detail       text not null default '',
    exit_code    integer,
    exit_signal  integer,
    second_hand  boolean not null default false,
    pane_id      text not null default '',
    target       text not null default '',
    socket_path  text not null default '',
    started_at   timestamptz,
    ended_at     timestamptz,
    claimed_at   timestamptz not null default now(),
    settled_at   timestamptz,
    lease_until  timestamptz not null,
    gone_at      timestamptz not null,
    host_at      timestamptz,
    process_at   timestamptz,
    progress_at  timestamptz,
    output       text not null default '',
    owed         boolean not null default false,
    owed_look    timestamptz not null default now()
);
-- There are never two for one task, and a worker has one at a time.
create unique index team_attempts_open on dispatcher.team_attempts (run_id, task_id) where state <> 'ended';
create unique index team_attempts_worker on dispatcher.team_attempts (run_id, worker) where state <> 'ended';
create index team_attempts_of_run on dispatcher.team_attempts (run_id, claimed_at, attempt_id);
create index team_attempts_owed on dispatcher.team_attempts (owed_look) where owed;

-- What a step left for those after it.
create table dispatcher.team_artifacts (
    run_id     text not null references dispatcher.team_runs on delete cascade,
    name       text not null,
    attempt_id text not null,
    text       text not null,
    created_at timestamptz not null default now(),
    primary key (run_id, name)
);

create table dispatcher.team_history (
    seq        bigint generated always as identity primary key,
    run_id     text not null references dispatcher.team_runs on delete cascade,
    time       timestamptz not null default clock_timestamp(),
    what       text not null,
    task_id    text not null default '',
    attempt_id text not null default '',
    phase_from text not null default '',
    phase_to   text not null default '',
    reason     text not null default '',
    detail     text not null default '',
    who        text not null default '',
    epoch      bigint not null default 0
);
create index team_history_of_run on dispatcher.team_history (run_id, seq);

-- +goose Down
drop table dispatcher.team_history;
drop table dispatcher.team_artifacts;
drop table dispatcher.team_attempts;
drop table dispatcher.team_tasks;
drop table dispatcher.team_runs;
