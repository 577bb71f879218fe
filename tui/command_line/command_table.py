"""The table of all commands: group, summary, example, arguments, and the function that runs the command."""

from collections.abc import Callable
from dataclasses import dataclass

from tui.command_line import arguments, plan_arguments
from tui.command_line.arguments import CommandParser


@dataclass(frozen=True, slots=True)
class SubcommandSpec:
    name: str
    summary: str
    example: str
    """Example command lines, exactly as typed."""
    arguments: Callable[[CommandParser], None]


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One command of the command line, such as `headgate ls`."""

    name: str
    group: str
    summary: str
    example: str
    """Example command lines, exactly as typed."""
    runs: str
    """Function that runs the command, as `module:function` below `tui.commands`."""
    arguments: Callable[[CommandParser], None]
    """Adds the arguments of the command used without a subcommand."""
    places: bool = True
    """True if the command accepts `--project` and `--env`."""
    subcommands: tuple[SubcommandSpec, ...] = ()


LOOK, CHANGE, ACT, HOUSE = "look", "change", "act now", "environment"

PLAN_SUBCOMMANDS = (
    SubcommandSpec("deploy", "Same as without a subcommand; also plans a table called delete or undo.",
                   "headgate plan deploy fct_orders\nheadgate plan deploy diff", plan_arguments.plan),
    SubcommandSpec("delete", "Plan a delete, and submit the plan to the agent.",
                   "headgate plan delete crm_visits\nheadgate plan delete --pipeline fct_orders",
                   plan_arguments.plan_delete),
    SubcommandSpec("undo", "Plan tables with the texts that they had before an executed plan.",
                   "headgate plan undo 7f3a\nheadgate plan undo 7f3a-01c2f --rebuild", plan_arguments.plan_undo),
    SubcommandSpec("rollback", "Plan the previous versions back; they continue from their checkpoints.",
                   "headgate plan rollback fct_orders\nheadgate plan rollback 7f3a", plan_arguments.plan_rollback),
    SubcommandSpec("undelete", "Plan to restore deleted tables from the trash, with their checkpoints.",
                   "headgate plan undelete crm_visits", plan_arguments.plan_undelete),
    SubcommandSpec("retire", "Plan to move every replaced version of tables to the trash.",
                   "headgate plan retire fct_orders\nheadgate plan retire 7f3a-01c2f", plan_arguments.plan_retire),
    SubcommandSpec("optimize", "Plan to compact small files of Delta tables.", "headgate plan optimize fct_orders",
                   plan_arguments.plan_optimize),
    SubcommandSpec("vacuum", "Plan to delete files that only older versions of Delta tables use.",
                   "headgate plan vacuum fct_orders\nheadgate plan vacuum fct_orders --retain 720",
                   plan_arguments.plan_vacuum),
    SubcommandSpec("diff", "Show the differences between two plans.",
                   "headgate plan diff 7f3a 91bc\nheadgate plan diff 7f3a ./plan.json --json",
                   plan_arguments.plan_diff),
)  # fmt: skip

RUN_SUBCOMMANDS = (
    SubcommandSpec("show", "Same as with the run's id alone.", "headgate runs show 7f3a-01c2f",
                   plan_arguments.run_continued),
    SubcommandSpec("pause", "Start no further step; steps in progress finish.", "headgate runs pause 7f3a-01c2f",
                   plan_arguments.run_act),
    SubcommandSpec("resume", "Continue a paused run.", "headgate runs resume 7f3a-01c2f --follow",
                   plan_arguments.run_continued),
    SubcommandSpec("cancel", "End a run; stop new versions that do not serve, and keep their tables.",
                   "headgate runs cancel 7f3a-01c2f --confirm 7f3a", plan_arguments.run_confirmed),
    SubcommandSpec("retry", "Retry a failed step, or continue with edited files.",
                   "headgate runs retry 7f3a-01c2f --follow", plan_arguments.run_retry),
    SubcommandSpec("ack", "Acknowledge a failed run: consoles no longer show it in their header.",
                   "headgate runs ack 7f3a-01c2f", plan_arguments.run_act),
    SubcommandSpec("skip", "Continue without a step.",
                   "headgate runs skip 7f3a-01c2f --step 3 --confirm 7f3a", plan_arguments.run_skip),
)  # fmt: skip

RELEASE_SUBCOMMANDS = (
    SubcommandSpec("list", "Same as without a subcommand.", "headgate release list\nheadgate release list --json",
                   arguments.nothing),
    SubcommandSpec("show", "Show both versions of each table, what the release waits for, and the way back.",
                   "headgate release show 7f3a-01c2f\nheadgate release show 7f3a-01c2f --steps",
                   plan_arguments.release_shown),
    SubcommandSpec("diff", "Show the comparison of both versions, or compare an overlay with its base.",
                   "headgate release diff 7f3a-01c2f\nheadgate release diff 7f3a-01c2f fct_orders --json\n"
                   "headgate release diff --env pr-123 --markdown\n"
                   "headgate release diff fct_orders --env pr-123 --last",
                   plan_arguments.release_diff),
    SubcommandSpec("swap", "Let a held release swap, and follow its run.",
                   "headgate release swap 7f3a-01c2f --confirm 'dev 7f3a'", plan_arguments.release_executed),
    SubcommandSpec("rollback", "The same as headgate rollback RUN.",
                   "headgate release rollback 7f3a-01c2f --confirm 'dev 91bc'", plan_arguments.release_executed),
    SubcommandSpec("retire", "Move every version that the release replaced to the trash.",
                   "headgate release retire 7f3a-01c2f --confirm 'dev 91bc'", plan_arguments.release_executed),
    SubcommandSpec("close", "Close the migration ticket of a reader that has moved to the new version.",
                   "headgate release close 7f3a-01c2f dashboard", plan_arguments.release_close),
)  # fmt: skip

POLICY_SUBCOMMANDS = (
    SubcommandSpec("show", "Show the policy in force beside the declared one.", "headgate policy show --env prod",
                   arguments.nothing),
    SubcommandSpec("apply", "Record the declared policy.", "headgate policy apply --env prod",
                   arguments.policy_act),
    SubcommandSpec("approve", "Put the waiting policy into force.", "headgate policy approve --env prod",
                   arguments.policy_act),
)  # fmt: skip

POOL_SUBCOMMANDS = (
    SubcommandSpec("list", "List the pools: state, statements, capacity.", "headgate pool list --json",
                   arguments.nothing),
    SubcommandSpec("show", "Show a pool: address, session, statements, last words.", "headgate pool show large",
                   arguments.pool_show),
    SubcommandSpec("drain", "Plan to move every statement of a pool to others.",
                   "headgate pool drain small\nheadgate pool drain small --to large", plan_arguments.pool_drain),
    SubcommandSpec("cordon", "Let a pool take no new statements; what runs there goes on.",
                   "headgate pool cordon small", arguments.pool_show),
    SubcommandSpec("uncordon", "Let a pool take new statements again.", "headgate pool uncordon small",
                   arguments.pool_show),
    SubcommandSpec("recipe", "Print how to start a server on a cluster, and its entry in headgate.yml.",
                   "headgate pool recipe yarn --name large\nheadgate pool recipe kubernetes --json",
                   arguments.pool_recipe),
)  # fmt: skip

DEMO_SUBCOMMANDS = (
    SubcommandSpec("run", "Same as without a subcommand.", "headgate demo run ./my-demo", arguments.demo),
    SubcommandSpec("settle", "Stop the feeds and close every window, for exact comparisons.",
                   "headgate demo settle\nheadgate demo settle ./my-demo", arguments.demo_folder),
    SubcommandSpec("change", "Edit one of the demo's statements, as an example of a kind of change.",
                   "headgate demo change filter\nheadgate demo change rename --with-readers", arguments.demo_change),
    SubcommandSpec("compare", "Measure the scenarios over the same changes of a database.",
                   "headgate demo compare\nheadgate demo compare --scenario 3 --scenario 6 --markdown",
                   arguments.demo_compare),
)  # fmt: skip

TEST_SUBCOMMANDS = (
    SubcommandSpec("run", "Same as without a subcommand; also tests a table called init.", "headgate test run init",
                   arguments.test),
    SubcommandSpec("init", "Write a first case: made-up rows, and what the statement writes for them.",
                   "headgate test init fct_orders\nheadgate test init --integration sales", arguments.test_init),
)  # fmt: skip

BENCH_SUBCOMMANDS = (
    SubcommandSpec("latency", "Measure the time from a source to each table, idle and under load.",
                   "headgate bench latency\nheadgate bench latency fct_revenue --rate 500 --svg latency.svg\n"
                   "headgate bench latency --product sales --repeat 3 --out latency.json",
                   arguments.bench_latency),
    SubcommandSpec("throughput", "Search for the highest rate at which every statement meets its objective.",
                   "headgate bench throughput fct_revenue\n"
                   "headgate bench throughput --product sales --record-bytes 1000 --out r.json",
                   arguments.bench_throughput),
    SubcommandSpec("scale", "Measure how latency or rate, CPU and memory change along an axis.",
                   "headgate bench scale fct_revenue --points 1,2,4,8\n"
                   "headgate bench scale --axis cores --points 1,2\n"
                   "headgate bench scale fct_revenue --axis chain --points 1,3,6 --svg chain.svg",
                   arguments.bench_scale),
    SubcommandSpec("startup", "Measure the time to first rows, from a start and from kills of server and agent.",
                   "headgate bench startup fct_revenue\nheadgate bench startup --repeat 3 --out startup.json",
                   arguments.bench_startup),
    SubcommandSpec("compare", "Say what differs beyond noise: two results, or old and new texts.",
                   "headgate bench compare old.json new.json\n"
                   "headgate bench compare --since main\n"
                   "headgate bench compare --since main fct_revenue --pairs 12 --markdown",
                   arguments.bench_compare),
    SubcommandSpec("show", "Show a result that --out has written.",
                   "headgate bench show latency.json\nheadgate bench show latency.json --svg latency.svg",
                   arguments.bench_show),
)  # fmt: skip

CLUSTER_SUBCOMMANDS = (
    SubcommandSpec("up", "Start what is not running, and print the lines of headgate.yml for a pool on it.",
                   "headgate cluster up\nheadgate cluster up --workers 2 --cores 2 --memory 1g", arguments.cluster_up),
    SubcommandSpec("down", "End master and workers.", "headgate cluster down", arguments.cluster),
    SubcommandSpec("status", "Show each process beside what the master says.",
                   "headgate cluster status\nheadgate cluster status --json", arguments.cluster),
)  # fmt: skip

INIT_SUBCOMMANDS = (
    SubcommandSpec("table", "Write a new table of this project.",
                   "headgate init table clicks\nheadgate init table fct_orders --layer facts --reads src_orders\n"
                   "headgate init table orders --delta /lake/orders\n"
                   "headgate init table products --postgres postgresql://reader@db/shop/products\n"
                   "headgate init table orders --kafka kafka://broker:9092/orders",
                   arguments.init_table),
    SubcommandSpec("function", "Write a new function in SQL or Python, with test cases.",
                   "headgate init function vat\nheadgate init function score --python", arguments.init_function),
)  # fmt: skip

COMMAND_SPECS = (
    CommandSpec("ls", LOOK, "List statements: state, version, lag, trend.",
                "headgate ls --product kitchen\nheadgate ls --json --fail-on 'failed,lag>1k'",
                "ls_lag_wait_health_peek:ls", arguments.ls),
    CommandSpec("show", LOOK, "Show a statement: metrics, inputs, readers, versions.",
                "headgate show fct_orders\nheadgate show fct_orders@v2",
                "show:show", arguments.show),
    CommandSpec("peek", LOOK, "Print some rows of a table.", "headgate peek fct_orders -n 5",
                "ls_lag_wait_health_peek:peek", arguments.peek),
    CommandSpec("lag", LOOK, "Show how far behind each input every statement is.", "headgate lag fct_orders",
                "ls_lag_wait_health_peek:lag", arguments.ls),
    CommandSpec("lineage", LOOK, "Trace a column upstream or downstream.",
                "headgate lineage fct_revenue.revenue_cents\nheadgate lineage orders.status --down --json\n"
                "headgate lineage fct_revenue --svg lineage.svg\n"
                "headgate lineage fct_revenue --format mermaid", "lineage_impact:lineage", arguments.lineage),
    CommandSpec("inventory", LOOK, "List every table with its inputs, readers and serving version.",
                "headgate inventory --product kitchen\nheadgate inventory --unused\n"
                "headgate inventory --cross-product --json", "inventory_report:inventory", arguments.inventory),
    CommandSpec("report", LOOK, "Show the upstream and downstream hierarchy of a table.",
                "headgate report fct_orders\nheadgate report src_orders --down --depth 2 --yaml\n"
                "headgate report fct_orders --up --svg fct_orders.svg", "inventory_report:report", arguments.report),
    CommandSpec("health", LOOK, "Summarize states, lag and errors by product and layer.",
                "headgate health\nheadgate health kitchen sales --fail-on failed,stalled --json",
                "ls_lag_wait_health_peek:health", arguments.health),
    CommandSpec("impact", LOOK, "Show what happens downstream if a table is rebuilt or dropped or loses a column.",
                "headgate impact src_orders\nheadgate impact src_orders.status\nheadgate impact 'vat()'\n"
                "headgate impact src_orders --children all --json", "lineage_impact:impact", arguments.impact),
    CommandSpec("wait", LOOK, "Wait until statements are in a state or have caught up.",
                "headgate wait fct_orders --lag 0 --timeout 120\nheadgate wait --state running",
                "ls_lag_wait_health_peek:wait", arguments.wait),
    CommandSpec("history", LOOK, "Show a table's history: deploys, operator actions, failures.",
                "headgate history fct_orders\nheadgate history fct_orders -n 10 --json", "history:history",
                arguments.history),
    CommandSpec("schema", LOOK, "Show a table's columns in each version, and what is compatible with what.",
                "headgate schema fct_orders\nheadgate schema fct_orders --json", "schema:schema", arguments.schema),
    CommandSpec("events", LOOK, "List state changes and exceptions.", "headgate events fct_orders -n 20",
                "events_logs_audit:events", arguments.events),
    CommandSpec("logs", LOOK, "Print the log of the agent, of the pool, or of a job in Python.",
                "headgate logs pool -n 100\nheadgate logs pool large\nheadgate logs --job fct_visits",
                "events_logs_audit:logs", arguments.logs),
    CommandSpec("audit", LOOK, "Show who did what, and when.",
                "headgate audit -n 20\nheadgate audit --table fct_orders", "events_logs_audit:audit", arguments.audit),
    CommandSpec("plan", CHANGE, "Plan a deploy or a delete, and submit the plan to the agent.",
                "headgate plan fct_orders --children all --exclude fct_tips\nheadgate plan delete crm_visits\n"
                "headgate plan --product sales --observed observed.yml --json --exit-code\n"
                "headgate plan --changed-since main --children kitchen --observed observed.yml\n"
                "headgate plan fct_orders --save plan.json\nheadgate plan diff 7f3a 91bc\n"
                "headgate plan --changed-since main --offline --markdown\n"
                "headgate plan --list tables.txt --layer facts --dir pipelines/facts/sales\n"
                "headgate plan fct_orders --rebuild --from 2026-01-31T06:00Z --offline\n"
                "headgate plan fct_orders --strategy fct_orders=earliest\n"
                "headgate plan --all --keep-table\n"
                "headgate plan delete --pipeline fct_orders", "plan:plan", plan_arguments.plan,
                subcommands=PLAN_SUBCOMMANDS),
    CommandSpec("export", CHANGE, "Export what is deployed, for planning elsewhere.",
                "headgate export observed --env prod -o observed.yml\nheadgate export observed --json",
                "backup_restore_adopt_export:export", arguments.export),
    CommandSpec("sql", CHANGE, "Show what a statement reads, keeps as state and writes.",
                "headgate sql dml.fct_orders.sql --spark\nheadgate sql - --json\nheadgate sql old.sql --reads stream",
                "sql_diff:sql", arguments.sql),
    CommandSpec("diff", CHANGE, "Classify an edit of a file, or compare what runs in two environments.",
                "headgate diff old.sql new.sql\nheadgate diff HEAD:./dml.orders.sql dml.orders.sql --json\n"
                "headgate diff --env dev --env stage --product sales",
                "sql_diff:diff", arguments.diff),
    CommandSpec("test", CHANGE, "Run the test cases of statements on a Spark server of their own.",
                "headgate test\nheadgate test fct_orders --json\nheadgate test --upgrade --since main\n"
                "headgate test --integration --product sales --pool dev --junit results.xml\n"
                "headgate test init fct_orders", "statement_tests:test", arguments.test,
                subcommands=TEST_SUBCOMMANDS),
    CommandSpec("bench", CHANGE, "Measure latency, throughput and scalability in environments of its own.",
                "headgate bench latency fct_revenue\nheadgate bench throughput --product sales",
                "bench:bench", arguments.nothing, subcommands=BENCH_SUBCOMMANDS),
    CommandSpec("review", CHANGE, "List plans, or show one in full.",
                "headgate review\nheadgate review 7f3a\nheadgate review plan.json", "review_approve:review",
                plan_arguments.review),
    CommandSpec("approve", CHANGE, "Approve another login's plan.", "headgate approve 7f3a", "review_approve:approve",
                plan_arguments.approve),
    CommandSpec("apply", CHANGE, "Execute a plan and wait for it.",
                "headgate apply 7f3a --confirm 'dev 7f3a'\nheadgate apply plan.json", "apply:apply",
                plan_arguments.apply),
    CommandSpec("promote", CHANGE, "Plan in one environment what runs in another.",
                "headgate promote fct_orders --from dev --to stage\n"
                "headgate promote --product sales --from dev --to stage\n"
                "headgate promote fct_orders --with-parents --from stage --to prod",
                "plan:promote", plan_arguments.promote),
    CommandSpec("runs", CHANGE, "List runs, show one, or pause, resume, cancel, retry, skip.",
                "headgate runs\nheadgate runs 7f3a-01c2f --follow\nheadgate runs retry 7f3a-01c2f", "runs:runs",
                plan_arguments.runs, subcommands=RUN_SUBCOMMANDS),
    CommandSpec("delete", CHANGE, "Delete tables that nothing reads: plan, review and apply in one step.",
                "headgate delete crm_visits\nheadgate delete --pipeline fct_orders --children all", "apply:delete",
                plan_arguments.delete),
    CommandSpec("release", CHANGE, "List releases, let a held one swap, or roll one back.",
                "headgate release\nheadgate release show 7f3a-01c2f", "release:release", arguments.nothing,
                subcommands=RELEASE_SUBCOMMANDS),
    CommandSpec("rollback", CHANGE, "Restore the versions before a release: plan, review and apply in one step.",
                "headgate rollback fct_orders\nheadgate rollback 7f3a --confirm 'dev 91bc'", "apply:act_by_name",
                plan_arguments.rollback),
    CommandSpec("undelete", CHANGE, "Restore deleted tables from the trash: plan, review and apply in one step.",
                "headgate undelete crm_visits", "apply:act_by_name", plan_arguments.undelete),
    CommandSpec("optimize", CHANGE, "Compact small files of Delta tables: plan, review, apply.",
                "headgate optimize fct_orders\nheadgate optimize fct_orders stg_orders --confirm 2",
                "apply:act_by_name",
                plan_arguments.optimize),
    CommandSpec("vacuum", CHANGE, "Delete files that only older versions of Delta tables use.",
                "headgate vacuum fct_orders\nheadgate vacuum fct_orders --retain 720 --confirm 'dev 7f3a'",
                "apply:act_by_name", plan_arguments.vacuum),
    CommandSpec("stop", ACT, "Stop statements now; their checkpoints stay.",
                "headgate stop fct_orders --yes\nheadgate stop fct_orders@v2 --yes",
                "stop_start_restart:act", arguments.act),
    CommandSpec("start", ACT, "Start stopped statements on their checkpoints.", "headgate start fct_orders --yes",
                "stop_start_restart:act", arguments.act),
    CommandSpec("restart", ACT, "Stop and start statements on their checkpoints.", "headgate restart fct_orders --yes",
                "stop_start_restart:act", arguments.act),
    CommandSpec("up", HOUSE, "Start the agent and its pool.", "headgate up --env dev", "console_up_down:up",
                arguments.up),
    CommandSpec("down", HOUSE, "Stop agent, pool and generator of one environment.",
                "headgate down\nheadgate down --purge --confirm pizzeria", "console_up_down:down", arguments.down),
    CommandSpec("env", HOUSE, "List the environments: agent, pool, faults, freeze, age, names, data.",
                "headgate env\nheadgate env --json", "env:env", arguments.nothing),
    CommandSpec("pool", HOUSE, "Show the pools of an environment, or move statements out of one.",
                "headgate pool list\nheadgate pool show large\nheadgate pool drain small",
                "pool:pool", arguments.nothing, subcommands=POOL_SUBCOMMANDS),
    CommandSpec("unlock", HOUSE, "Unlock a protected environment for yourself, for a limited time.",
                "headgate unlock 30m OPS-1234 --env prod", "unlock_lock:unlock", arguments.unlock),
    CommandSpec("lock", HOUSE, "End your unlock of a protected environment.", "headgate lock --env prod",
                "unlock_lock:lock", arguments.nothing),
    CommandSpec("policy", HOUSE, "Show or record the policy of an environment.",
                "headgate policy show --env prod\nheadgate policy apply --env prod\nheadgate policy approve --env prod",
                "policy:policy", arguments.nothing, subcommands=POLICY_SUBCOMMANDS),
    CommandSpec("adopt", HOUSE, "Adopt a restored, copied or moved environment as this ledger's own.",
                "headgate adopt\nheadgate adopt --env prod --confirm 'prod adopt'", "backup_restore_adopt_export:adopt",
                arguments.confirm),
    CommandSpec("backup", HOUSE, "Copy the ledger to a file, while the agent runs, and verify the copy.",
                "headgate backup ledger-monday.db --env prod", "backup_restore_adopt_export:backup", arguments.backup),
    CommandSpec("restore", HOUSE, "Replace the ledger by a backup; the old one is kept, and no agent may run.",
                "headgate restore ledger-monday.db --env dev --confirm pizzeria", "backup_restore_adopt_export:restore",
                arguments.restore),
    CommandSpec("doctor", HOUSE, "Check Java, jars, Python, disk, terminal, project, home, agent, ledger.",
                "headgate doctor --json", "doctor:doctor", arguments.doctor),
    CommandSpec("cluster", HOUSE, "Start, end or show a standalone cluster on this machine.",
                "headgate cluster up --workers 2\nheadgate cluster status\nheadgate cluster down",
                "cluster:cluster", arguments.cluster, places=False, subcommands=CLUSTER_SUBCOMMANDS),
    CommandSpec("demo", HOUSE, "Run the sample project: a pizzeria.",
                "headgate demo\nheadgate demo ./my-demo --no-console\nheadgate demo ../on-delta --format delta\n"
                "headgate demo --scenario 6\nheadgate demo compare\nheadgate demo settle\n"
                "headgate demo change filter",
                "demo:demo", arguments.demo, places=False, subcommands=DEMO_SUBCOMMANDS),
    CommandSpec("init", HOUSE, "Create a new project, table or function that is ready to run.",
                "headgate init pizzeria\n"
                "headgate init --from-manifests queries\n"
                "headgate init table fct_orders --layer facts --reads src_orders",
                "init:init", arguments.init, subcommands=INIT_SUBCOMMANDS),
    CommandSpec("help", HOUSE, "Print a topic of the manual, or the help of a command.",
                "headgate help plans\nheadgate help runs cancel", "help_completion:manual",
                arguments.help, places=False),
    CommandSpec("completion", HOUSE, "Print a completion script for bash or zsh, with table names.",
                "source <(headgate completion bash)", "help_completion:completion", arguments.completion),
)  # fmt: skip
"""All commands, in the order of `headgate --help`."""

SPEC_BY_NAME = {verb.name: verb for verb in COMMAND_SPECS}
