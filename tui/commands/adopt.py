"""adopt: what was found where the world is in doubt, and taking it for the ledger's own."""

from tui.agent_client.agent_commands import equivalent_command
from tui.command_line.context import CommandContext


def adopt(context: CommandContext) -> int:
    """Show what is in doubt and what an adoption does, ask, and have the agent do it."""
    from core.plan.confirmation import confirmation_for_adoption

    place, voice, client = context.place, context.voice, context.operations.client
    context.announce()
    found = client.call("adoption")
    doubt = str(found.get("doubt") or "")
    if not doubt:
        if voice.as_json:
            voice.data({"doubt": "", "lines": [], "epoch": None})
        else:
            voice.say("nothing is in doubt: there is nothing to adopt")
        return 0
    voice.say("\n".join((doubt, "An adoption takes what is there for this ledger's own, as a new epoch:")))
    voice.say("\n".join(f"  {line}" for line in found.get("lines", ())))
    text = confirmation_for_adoption(place.environment).text
    confirm = context.confirm(text, f"Adopting this world for {place.title}. What is wanted running starts at once.")
    answer = client.call("adopt", confirm=confirm, line=equivalent_command(place, "adopt"))
    if voice.as_json:
        left = answer.get("left") or []
        voice.data({"doubt": doubt, "lines": found.get("lines"), "epoch": answer.get("epoch"), "left": left})
    else:
        voice.print([f"adopted as epoch {answer.get('epoch')}"])
        for line in answer.get("left") or ():
            voice.say(f"not taken over, adopt again once it can be: {line}")
    return 0
