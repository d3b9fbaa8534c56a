// The pagekv command. Parses, then hands over to one file per subcommand.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "pagekv/version.h"
#include "tools/bench.h"
#include "tools/cache.h"
#include "tools/chat.h"
#include "tools/console.h"
#include "tools/info.h"
#include "tools/inspect.h"
#include "tools/ppl.h"
#include "tools/replay.h"
#include "tools/run.h"

int main(int argc, char** argv) {
  using namespace pagekv_tool;
  CLI::App app("Paged key/value cache for LLM inference: run a model on it.", "pagekv");
  app.set_version_flag("--version", std::string("pagekv ") + PAGEKV_VERSION_STRING);
  app.require_subcommand(1);
  app.footer("Exit codes: 0 done, 1 failed while running, 2 the command line makes no sense.");
  RunOptions run_options;
  ChatOptions chat_options;
  PplOptions ppl_options;
  BenchOptions bench_options;
  ReplayOptions replay_options;
  InfoOptions info_options;
  InspectOptions inspect_options;
  CacheOptions cache_options;
  const CLI::App* run_command = add_run(app, run_options);
  const CLI::App* chat_command = add_chat(app, chat_options);
  const CLI::App* ppl_command = add_ppl(app, ppl_options);
  const CLI::App* bench_command = add_bench(app, bench_options);
  const CLI::App* replay_command = add_replay(app, replay_options);
  const CLI::App* inspect_command = add_inspect(app, inspect_options);
  const CLI::App* cache_command = add_cache(app, cache_options);
  add_info(app, info_options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const std::vector<std::string> unknown = app.remaining();
    report_error(unknown.empty() ? error.what() : "there is no command " + unknown.front());
    return report_error("try --help", kExitUsage);
  }
  try {
    const int code = run_command->parsed()       ? run(run_options)
                     : chat_command->parsed()    ? chat(chat_options)
                     : ppl_command->parsed()     ? ppl(ppl_options)
                     : bench_command->parsed()   ? bench(bench_options)
                     : replay_command->parsed()  ? replay(replay_options)
                     : inspect_command->parsed() ? inspect(inspect_options)
                     : cache_command->parsed()   ? cache(cache_options)
                                                 : info(info_options);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    return report_error("cannot write to standard output");
  } catch (const std::bad_alloc&) {
    return report_error("out of memory");
  } catch (const std::system_error& error) {  // what printing throws when the disk is full
    return report_error(error.what());
  }
}
